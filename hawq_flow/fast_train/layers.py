"""A layer's part of a training step in C++, on the loops of :mod:`hawq_flow.fast_train.kernels`.

The formulas are those of :mod:`hawq_flow.quant` (its docstring has the maths), and each function names the one it
computes. What batch norm adds is written so that no sample's pre-activation is ever needed: with ``y = S W q + b`` for
integers ``q`` of mean ``u`` and covariance ``C`` over the batch's ``n`` rows::

    mean_c = S w_c . u + b_c            variance_c = S^2 w_c . C w_c

and the gradients ``d_c`` and ``e_c`` of the loss by mean and variance come back as ::

    dL/dW  = S d u^T + 2 S^2 diag(e) W C                dL/dq = S/n W^T d + 2 S^2/n W^T diag(e) W (q - u)
    dL/dlog S = sum_c d_c (mean_c - b_c) + 2 e_c variance_c

The bias ahead of a batch norm has no gradient (what it adds, the mean takes off); torch's is the rounding error of that
difference.
"""

LAYERS = r"""
// What Python gives of a layer: its parameters in place, and ends for each output: of its weights (clip, pass) and of
// its values (low, high, pass above, pass below). Null pointers: no batch norm, or none with parameters.
struct Spec {
    int32_t inputs, outputs, scales, multiplier_bits;
    double max_scale, momentum, epsilon;
    float down;
    int32_t has_norm;
    float *weight, *bias, *log_weight, *log_scale, *gamma, *beta, *running_mean, *running_variance;
    const float *weight_ends, *ends;
};

struct Hyper {
    double lr, scale_lr, weight_decay, l1, input_scale;
    int64_t refresh, steps;
    int32_t squares, layers;
};

struct Layer {
    Spec s;
    int K, M;
    double scale;
    float ratio, inverse_scale, input_scale, g_scale, share;
    std::vector<float> multiplier, inverse, bias_factor, folded, across, bias, offset, g_weight, g_bias, g_log_weight;
    std::vector<float> factor, effective, effective_bias, mean, variance, inputs_mean, covariance, spread;
    std::vector<float> g_gamma, g_beta, back, back_constant;
    std::vector<V> values, grads, centred;
    Adam of_weight, of_bias, of_log_weight, of_scale, of_gamma, of_beta;

    void open(const Spec &spec, int panels) {
        s = spec, K = s.inputs, M = s.outputs;
        const size_t n = (size_t)M * K;
        for (auto *v : {&multiplier, &inverse, &bias_factor, &bias, &offset, &g_bias})
            v->assign(M, 0.0f);
        for (auto *v : {&folded, &across, &g_weight})
            v->assign(n, 0.0f);
        g_log_weight.assign(s.scales, 0.0f);
        values.assign((size_t)panels * M * NV, V{});
        grads.assign((size_t)panels * M * NV, V{});
        of_weight.open(n), of_bias.open(M), of_log_weight.open(s.scales), of_scale.open(1);
        if (!s.has_norm)
            return;
        for (auto *v : {&factor, &effective_bias, &mean, &variance, &g_gamma, &g_beta})
            v->assign(M, 0.0f);
        for (auto *v : {&effective, &spread})
            v->assign(n, 0.0f);
        for (auto *v : {&covariance, &back})
            v->assign((size_t)K * K, 0.0f);
        inputs_mean.assign(K, 0.0f), back_constant.assign(K, 0.0f);
        centred.assign((size_t)panels * K * NV, V{});
        of_gamma.open(s.gamma ? M : 0), of_beta.open(s.beta ? M : 0);
    }

    // What is quantized: the weights and bias, with batch norm folded in.
    const float *weights() const { return s.has_norm ? effective.data() : s.weight; }
    const float *biases() const { return s.has_norm ? effective_bias.data() : s.bias; }

    // QuantLayer.refresh, from snapped multipliers and the output's scale.
    void constants(const double *m, double from, double to) {
        scale = to, input_scale = (float)from;
        for (int c = 0; c < M; c++) {
            multiplier[c] = (float)m[c];
            inverse[c] = (float)(1.0 / (m[c] * to / from));
            bias_factor[c] = (float)(1.0 / (m[c] * to));
        }
        ratio = (float)(from / to), inverse_scale = (float)(1.0 / to);
    }

    // QuantLayer.scales of learned scales, and quant.snap.
    void snap(double from) {
        std::vector<double> raw(M), m(M);
        double largest = 0.0;
        for (int c = 0; c < M; c++) {
            raw[c] = std::exp((double)s.log_weight[s.scales > 1 ? c : 0]) * from;
            largest = larger(largest, raw[c]);
        }
        const int bits = s.multiplier_bits;
        double to = larger(std::exp((double)*s.log_scale), largest * std::ldexp(1.0, -std::min(FINEST, bits - 1)));
        to = smaller(to, s.max_scale);
        for (int c = 0; c < M; c++) {
            const double r = smaller(larger(raw[c] / to, std::ldexp(1.0, -36)), std::ldexp(1.0, bits - 1));
            int exponent = 0;
            std::frexp(r, &exponent);
            const int shift = std::max(bits - exponent, 0);
            m[c] = std::ldexp(std::nearbyint(std::ldexp(r, shift)), -shift);
        }
        constants(m.data(), from, to);
    }

    // QuantLayer._fold_batch: the statistics of a batch of integers, and the running ones.
    void statistics(const V *x, int rows) {
        const int panels = (rows + P - 1) / P;
        std::fill(inputs_mean.begin(), inputs_mean.end(), 0.0f);
        std::fill(covariance.begin(), covariance.end(), 0.0f);
        row_sums(x, K, panels, inputs_mean.data());
        for (auto &u : inputs_mean)
            u /= (float)rows;
        for (int p = 0; p < panels; p++)
            for (int j = 0; j < NV; j++) {
                const I here = lanes(j, rows - p * P);
                for (int k = 0; k < K; k++) {
                    const size_t at = ((size_t)p * K + k) * NV + j;
                    centred[at] = keep(x[at] - inputs_mean[k], here);
                }
            }
        squares(centred.data(), K, panels, covariance.data());
        for (auto &c : covariance)
            c /= (float)rows;
        const float unbiased = (float)rows / (float)std::max(rows - 1, 1), momentum = (float)s.momentum;
        for (int c = 0; c < M; c++) {
            const float *w = s.weight + (size_t)c * K;
            float *cw = spread.data() + (size_t)c * K;
            std::fill(cw, cw + K, 0.0f);
            float middle = 0.0f, width = 0.0f;
            for (int i = 0; i < K; i++) {
                const float *row = covariance.data() + (size_t)i * K;
                for (int k = 0; k < K; k++)
                    cw[k] += w[i] * row[k];
                middle += w[i] * inputs_mean[i];
            }
            for (int k = 0; k < K; k++)
                width += w[k] * cw[k];
            mean[c] = input_scale * middle + s.bias[c];
            // A rounding error can make the variance of a constant negative.
            variance[c] = width < 0.0f ? 0.0f : input_scale * input_scale * width;
            s.running_mean[c] += momentum * (mean[c] - s.running_mean[c]);
            s.running_variance[c] += momentum * (variance[c] * unbiased - s.running_variance[c]);
        }
    }

    // QuantLayer._fold, of the batch's statistics or the running ones.
    void fold_norm(const float *means, const float *variances) {
        for (int c = 0; c < M; c++) {
            factor[c] = (s.gamma ? s.gamma[c] : 1.0f) / std::sqrt(variances[c] + (float)s.epsilon);
            effective_bias[c] = (s.bias[c] - means[c]) * factor[c] + (s.beta ? s.beta[c] : 0.0f);
            for (size_t k = (size_t)c * K; k < (size_t)(c + 1) * K; k++)
                effective[k] = s.weight[k] * factor[c];
        }
    }

    // QuantizeWeights.forward.
    void quantize() {
        for (int c = 0; c < M; c++) {
            const float inv = inverse[c], m = multiplier[c], end = s.weight_ends[2 * c];
            const float *w = weights() + (size_t)c * K;
            float *f = folded.data() + (size_t)c * K;
            for (int k = 0; k < K; k++) {
                float v = w[k] * inv;
                v = v < -end ? -end : v;
                v = v > end ? end : v;
                f[k] = ((v + MAGIC) - MAGIC) * m;
            }
            for (int k = 0; k < K; k++)
                across[(size_t)k * M + c] = f[k];
            bias[c] = std::nearbyint(biases()[c] * bias_factor[c]) * m;
            offset[c] = bias[c] - s.down;
        }
    }

    // QuantizeWeights.backward: gradients of M q_w and M q_b become those of weights, bias and the scales' logarithms.
    // `share` is the part of log S_x, which is the layer's before.
    void unquantize() {
        float total = 0.0f, dot = 0.0f;
        std::fill(g_log_weight.begin(), g_log_weight.end(), 0.0f);
        for (int c = 0; c < M; c++) {
            const float inv = inverse[c], end = s.weight_ends[2 * c + 1];
            const float *w = weights() + (size_t)c * K, *f = folded.data() + (size_t)c * K;
            float *g = g_weight.data() + (size_t)c * K;
            V through{}, passed{};
            int k = 0;
            for (; k + L <= K; k += L) {
                const V weight = load(w + k), scaled = weight * inv;
                V grad = load(g + k);
                through += grad * load(f + k);
                grad = keep(grad * ratio, (scaled > -end) & (scaled < end));
                passed += grad * weight;
                *(Unaligned *)(g + k) = grad;
            }
            float a = sum(through), b = sum(passed);
            for (; k < K; k++) {
                const float scaled = w[k] * inv;
                a += g[k] * f[k];
                g[k] = scaled > -end && scaled < end ? g[k] * ratio : 0.0f;
                b += g[k] * w[k];
            }
            g_log_weight[s.scales > 1 ? c : 0] += a - b;
            total += a;
            dot += g_bias[c] * bias[c];
            g_bias[c] *= inverse_scale;
        }
        g_scale -= total + dot;
        share = total;
    }

    // Gradients back through fold_norm; before the freeze through the statistics too, with what goes on to the inputs.
    void unfold_norm(bool frozen, int64_t rows) {
        std::fill(back.begin(), back.end(), 0.0f);
        std::fill(back_constant.begin(), back_constant.end(), 0.0f);
        const float S = input_scale, n = (float)rows;
        for (int c = 0; c < M; c++) {
            const float *w = s.weight + (size_t)c * K, *cw = spread.data() + (size_t)c * K;
            float *g = g_weight.data() + (size_t)c * K;
            if (frozen) {
                for (int k = 0; k < K; k++)
                    g[k] *= factor[c];
                g_bias[c] *= factor[c];
                continue;
            }
            const float root = 1.0f / std::sqrt(variance[c] + (float)s.epsilon);
            float by_factor = g_bias[c] * (s.bias[c] - mean[c]);
            for (int k = 0; k < K; k++)
                by_factor += g[k] * w[k];
            const float by_mean = -g_bias[c] * factor[c];
            const float by_variance = -0.5f * by_factor * factor[c] * root * root;
            g_gamma[c] = by_factor * root, g_beta[c] = g_bias[c], g_bias[c] = 0.0f;
            for (int k = 0; k < K; k++)
                g[k] = g[k] * factor[c] + (by_mean * S) * inputs_mean[k] + (2.0f * by_variance * S * S) * cw[k];
            for (int i = 0; i < K; i++) {
                const float each = w[i] * (2.0f * by_variance * S * S / n);
                float *row = back.data() + (size_t)i * K;
                for (int k = 0; k < K; k++)
                    row[k] += each * w[k];
                back_constant[i] += w[i] * (by_mean * S / n);
            }
            share += by_mean * (mean[c] - s.bias[c]) + 2.0f * by_variance * variance[c];
        }
        for (int i = 0; i < K; i++)
            for (int k = 0; k < K; k++)
                back_constant[i] -= back[(size_t)i * K + k] * inputs_mean[k];
    }
};
"""
"""What Python gives of a layer, and a layer; the second part of the compiled file."""
