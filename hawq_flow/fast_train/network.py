"""A network's training step and epoch in C++, and the functions that Python calls.

A batch goes through in blocks of rows that stay in the cache, each forwards through all layers and backwards; where
batch norm takes statistics the block is the batch. Several networks take the same gathered block in turn.
"""

NETWORK = r"""
struct Network {
    Hyper h;
    int64_t age = -1, step = 0;
    bool frozen = false;
    double loss = 0.0;
    std::vector<Layer> layers;

    // QuantNetwork.train_forward's refresh, and every weight's quantization that needs no data.
    void begin() {
        if (!frozen && (age < 0 || age >= h.refresh)) {
            double from = h.input_scale;
            for (auto &l : layers)
                l.snap(from), from = l.scale;
            age = 0;
        }
        age++;
        for (auto &l : layers) {
            std::fill(l.g_weight.begin(), l.g_weight.end(), 0.0f);
            std::fill(l.g_bias.begin(), l.g_bias.end(), 0.0f);
            l.g_scale = 0.0f;
            if (l.s.has_norm && frozen)
                l.fold_norm(l.s.running_mean, l.s.running_variance);
            if (!l.s.has_norm || frozen)
                l.quantize();
        }
    }

    // Cross entropy of a panel's outputs q; its gradient takes the place of the mask in g.
    void cross_entropy(V *q, V *g, const int32_t *labels, int rows, int64_t batch) {
        Layer &l = layers.back();
        const float scale = (float)l.scale, mean = 1.0f / (float)batch;
        V scales{};
        for (int j = 0; j < NV; j++) {
            const I here = lanes(j, rows);
            I label;
            for (int i = 0; i < L; i++)
                label[i] = here[i] ? labels[j * L + i] : -1;
            V top = q[j], total{}, right{};
            for (int c = 1; c < l.M; c++) {
                const V v = q[c * NV + j];
                top = v > top ? v : top;
            }
            for (int c = 0; c < l.M; c++)
                total += exponential((q[c * NV + j] - top) * scale);
            for (int c = 0; c < l.M; c++) {
                const V z = (q[c * NV + j] - top) * scale;
                const I hit = label == c;
                right += keep(z, hit);
                const V d = keep((exponential(z) / total - keep(all(1.0f), hit)) * mean, here);
                scales += d * (q[c * NV + j] * scale);
                g[c * NV + j] = keep(d * scale, (I)g[c * NV + j]);
            }
            for (int i = 0; i < L; i++)
                if (here[i])
                    loss += (double)(std::log(total[i]) - right[i]);
        }
        l.g_scale += sum(scales);
    }

    // The mean squared error likewise.
    void squares(const V *q, V *g, const V *target, int rows, int64_t batch) {
        Layer &l = layers.back();
        const float scale = (float)l.scale, mean = 2.0f / ((float)batch * (float)l.M);
        V scales{};
        for (int j = 0; j < NV; j++) {
            const I here = lanes(j, rows);
            V total{};
            for (int c = 0; c < l.M; c++) {
                const V out = q[c * NV + j] * scale, error = keep(out - target[c * NV + j], here);
                total += error * error;
                scales += error * mean * out;
                g[c * NV + j] = keep(error * mean * scale, (I)g[c * NV + j]);
            }
            for (int i = 0; i < L; i++)
                loss += (double)total[i] / l.M;
        }
        l.g_scale += sum(scales);
    }

    // Some rows of a batch, all of them where statistics are taken, forwards and backwards.
    void block(const V *x, const int32_t *labels, const V *target, int rows, int64_t batch) {
        const int panels = (rows + P - 1) / P, n = (int)layers.size();
        const V *in = x;
        for (auto &l : layers) {
            if (l.s.has_norm && !frozen) {
                l.statistics(in, rows);
                l.fold_norm(l.mean.data(), l.variance.data());
                l.quantize();
            }
            for (int p = 0; p < panels; p++) {
                const size_t at = (size_t)p * l.M * NV;
                tiles<MR>(l.M, [&](auto size, int o) {
                    forwards<decltype(size)::value>(l.across.data(), l.offset.data(), l.s.ends, l.M, l.K, o,
                                                    in + (size_t)p * l.K * NV, l.values.data() + at,
                                                    l.grads.data() + at);
                });
            }
            clear(l, l.values, rows);
            in = l.values.data();
        }
        Layer &last = layers.back();
        for (int p = 0; p < panels; p++) {
            const size_t at = (size_t)p * last.M * NV;
            V *q = last.values.data() + at, *g = last.grads.data() + at;
            if (h.squares)
                squares(q, g, target + at, rows - p * P, batch);
            else
                cross_entropy(q, g, labels + p * P, rows - p * P, batch);
        }
        for (int i = n - 1; i >= 0; i--) {
            Layer &l = layers[i];
            const V *from = i ? layers[i - 1].values.data() : x;
            outers(l.grads.data(), l.M, from, l.K, panels, l.g_weight.data());
            row_sums(l.grads.data(), l.M, panels, l.g_bias.data());
            const bool statistics = l.s.has_norm && !frozen;
            if (statistics) {
                l.unquantize();
                l.unfold_norm(false, rows);
            }
            if (!i)
                break;
            for (int p = 0; p < panels; p++) {
                const size_t at = (size_t)p * l.K * NV;
                V *into = layers[i - 1].grads.data() + at;
                tiles<MR>(l.K, [&](auto size, int o) {
                    backwards<decltype(size)::value>(l.folded.data(), l.M, l.K, o,
                                                     l.grads.data() + (size_t)p * l.M * NV,
                                                     statistics ? l.back.data() : nullptr, l.back_constant.data(),
                                                     from + at, into);
                });
            }
            clear(layers[i - 1], layers[i - 1].grads, rows);
        }
    }

    // The rows that the last panel lacks are 0 in every sum.
    static void clear(const Layer &l, std::vector<V> &panels, int rows) {
        if (rows % P == 0)
            return;
        V *last = panels.data() + (size_t)(rows / P) * l.M * NV;
        for (int j = 0; j < NV; j++) {
            const I here = lanes(j, rows % P);
            for (int c = 0; c < l.M; c++)
                last[c * NV + j] = keep(last[c * NV + j], here);
        }
    }

    // The rest of the backward pass, and Adam's step at a rate that falls as a half cosine.
    void end(int64_t batch) {
        for (size_t i = 0; i < layers.size(); i++) {
            Layer &l = layers[i];
            if (!l.s.has_norm || frozen)
                l.unquantize();
            if (l.s.has_norm && frozen)
                l.unfold_norm(true, batch);
            if (i)
                layers[i - 1].g_scale += l.share;
        }
        const double decay = 0.5 * (1.0 + std::cos(M_PI * (double)step / (double)h.steps));
        const double rate = h.lr * decay, scale_rate = h.scale_lr * decay;
        step++;
        for (auto &l : layers) {
            l.of_weight.step(l.s.weight, l.g_weight.data(), rate, h.weight_decay, h.l1, step);
            l.of_bias.step(l.s.bias, l.g_bias.data(), rate, h.weight_decay, 0.0, step);
            if (frozen)
                continue;
            l.of_log_weight.step(l.s.log_weight, l.g_log_weight.data(), scale_rate, 0.0, 0.0, step);
            l.of_scale.step(l.s.log_scale, &l.g_scale, scale_rate, 0.0, 0.0, step);
            l.of_gamma.step(l.s.gamma, l.g_gamma.data(), rate, h.weight_decay, 0.0, step);
            l.of_beta.step(l.s.beta, l.g_beta.data(), rate, h.weight_decay, 0.0, step);
        }
    }
};

extern "C" {

int32_t hawq_panel() { return P; }

// A network that trains blocks of up to `block` rows (a multiple of the panel); null: no memory.
void *hawq_open(const Hyper *hyper, const Spec *specs, int32_t block) {
    Network *n = nullptr;
    try {
        n = new Network;
        n->h = *hyper;
        n->layers.resize(hyper->layers);
        for (int i = 0; i < hyper->layers; i++)
            n->layers[i].open(specs[i], block / P);
        return n;
    } catch (const std::bad_alloc &) {
        delete n;
        return nullptr;
    }
}

void hawq_close(void *network) { delete (Network *)network; }

// Fixed multipliers, layer after layer, and output scales, one a layer.
void hawq_freeze(void *network, const double *multipliers, const double *scales) {
    Network &n = *(Network *)network;
    double from = n.h.input_scale;
    for (size_t i = 0; i < n.layers.size(); i++) {
        n.layers[i].constants(multipliers, from, scales[i]);
        multipliers += n.layers[i].M, from = scales[i];
    }
    n.frozen = true;
}

// What the last step used or found in a layer: 0 to 5 gradients of weight, bias, log_weight, log_scale, gamma, beta;
// 6 to 8 its multipliers, inverse weight scales and inverse bias steps.
const float *hawq_look(void *network, int32_t layer, int32_t what) {
    Layer &l = ((Network *)network)->layers[layer];
    const float *found[] = {l.g_weight.data(),   l.g_bias.data(), l.g_log_weight.data(), &l.g_scale,
                            l.g_gamma.data(),    l.g_beta.data(), l.multiplier.data(),   l.inverse.data(),
                            l.bias_factor.data()};
    return found[what];
}

// One epoch of several networks on the same rows in the same order; losses: the mean over rows, one a network.
// `x` (n, inputs), `labels` (n), `targets` (n, outputs) or null. 1: no memory.
int32_t hawq_epoch(void **networks, int32_t count, const float *x, const int32_t *labels, const float *targets,
                   const int64_t *order, int64_t rows, int64_t batch, int32_t block, double *losses) {
    Network **nets = (Network **)networks;
    const int width = nets[0]->layers[0].K, outputs = nets[0]->layers.back().M;
    try {
        std::vector<V> values((size_t)block / P * width * NV), wanted(targets ? (size_t)block / P * outputs * NV : 0);
        std::vector<int32_t> classes(block);
        // A last batch of a single sample joins the one before.
        const int64_t batches = std::max<int64_t>(1, (rows - 2 + batch) / batch);
        for (int32_t i = 0; i < count; i++)
            nets[i]->loss = 0.0;
        for (int64_t b = 0; b < batches; b++) {
            const int64_t from = b * batch, to = b == batches - 1 ? rows : from + batch;
            for (int32_t i = 0; i < count; i++)
                nets[i]->begin();
            for (int64_t at = from; at < to; at += block) {
                const int here = (int)std::min<int64_t>(block, to - at);
                gather(x, width, order + at, here, values.data());
                if (targets)
                    gather(targets, outputs, order + at, here, wanted.data());
                else
                    for (int r = 0; r < here; r++)
                        classes[r] = labels[order[at + r]];
                for (int32_t i = 0; i < count; i++)
                    nets[i]->block(values.data(), classes.data(), wanted.data(), here, to - from);
            }
            for (int32_t i = 0; i < count; i++)
                nets[i]->end(to - from);
        }
        for (int32_t i = 0; i < count; i++)
            losses[i] = nets[i]->loss / (double)rows;
        return 0;
    } catch (const std::bad_alloc &) {
        return 1;
    }
}
}
"""
"""The network and its functions; the last part of the compiled file."""
