"""The innermost loops, in C++: vectors of rows, and the three matrix products of a training step.

Values lie in *panels* of ``P`` rows, features first: ``panel[feature][row]``, so that a vector holds one feature of
``L`` rows and every weight is broadcast. A product keeps a tile of its results in registers: ``MR`` features times the
``NV`` vectors of a panel going forwards and backwards, ``T`` x ``T`` weight gradients over all panels of a block.

A sum's order is fixed by the shapes and the machine's vectors alone, so the same inputs give the same bytes.
Comparisons are written so that NaN passes through every clip: a diverged weight reaches the loss, as in torch.
"""

KERNELS = r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>
#include <vector>

#if defined(__AVX512F__)
constexpr int L = 16, NV = 2, MR = 8;
#elif defined(__AVX__)
constexpr int L = 8, NV = 2, MR = 4;
#else
constexpr int L = 4, NV = 2, MR = 4;
#endif
constexpr int P = L * NV, T = 4;

typedef float V __attribute__((vector_size(4 * L)));
typedef float Unaligned __attribute__((vector_size(4 * L), aligned(4)));
typedef int32_t I __attribute__((vector_size(4 * L)));

// Adding and taking off 3 * 2^22 rounds |v| <= 2^22 to nearest, ties to even, whatever vectors the machine has.
constexpr float MAGIC = 12582912.0f;

static inline V all(float v) { return v - V{}; }
static inline V load(const float *p) { return *(const Unaligned *)p; }
static inline V keep(V v, I where) { return (V)((I)v & where); }
static inline V rounded(V v) { return (v + MAGIC) - MAGIC; }
static inline V clamp(V v, float low, float high) {
    const V lows = all(low), highs = all(high);
    v = v < lows ? lows : v;
    return v > highs ? highs : v;
}
static inline float sum(V v) {
    float total = 0.0f;
    for (int i = 0; i < L; i++)
        total += v[i];
    return total;
}
// The lanes of vector j of a panel that hold one of its first `rows` rows.
static inline I lanes(int j, int rows) {
    I here;
    for (int i = 0; i < L; i++)
        here[i] = j * L + i < rows ? -1 : 0;
    return here;
}

// std::max and std::min that return NaN for NaN, as torch's do.
static inline double larger(double a, double b) { return b < a || a != a ? a : b; }
static inline double smaller(double a, double b) { return a < b || a != a ? a : b; }

// e^x of x <= 0, to 2e-7 of its value: x = n log 2 + r with |r| <= log(2) / 2, Taylor's polynomial of r, times 2^n.
// Below -87, where 2^n is no normal number, it is 0.
static inline V exponential(V x) {
    const V floor = all(-87.0f);
    const I dead = x < floor;
    x = dead ? floor : x;
    const V n = rounded(x * 1.44269504f);
    // log 2 in two parts, the first short enough that n times it is exact.
    const V r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    V p = r * (1.0f / 5040.0f) + (1.0f / 720.0f);
    p = p * r + (1.0f / 120.0f);
    p = p * r + (1.0f / 24.0f);
    p = p * r + (1.0f / 6.0f);
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const I power = (__builtin_convertvector(n, I) + 127) << 23;
    return keep(p * (V)power, ~dead);
}

// Lane i of sums<L, L>(a) is the sum of the lanes of a[i]: a tree of L - 1 steps, each of which halves the vectors.
template <int D> static inline V merge(V a, V b) {
    I own, other;
    for (int i = 0; i < L; i++) {
        own[i] = i & D ? L + i : i;
        other[i] = i & D ? L + (i ^ D) : i ^ D;
    }
    return __builtin_shuffle(a, b, own) + __builtin_shuffle(a, b, other);
}
template <int N, int D> static inline V sums(const V *a) {
    if constexpr (N == 1)
        return a[0];
    else
        return merge<D / 2>(sums<N / 2, D / 2>(a), sums<N / 2, D / 2>(a + N / 2));
}

// f(size, start) for tiles of N, and for what is left.
template <int N, class F> static inline void rest(int left, F &&f) {
    if constexpr (N > 0) {
        if (left == N)
            f(std::integral_constant<int, N>{});
        else
            rest<N - 1>(left, f);
    }
}
template <int N, class F> static inline void tiles(int n, F &&f) {
    int start = 0;
    for (; start + N <= n; start += N)
        f(std::integral_constant<int, N>{}, start);
    rest<N - 1>(n - start, [&](auto size) { f(size, start); });
}

// acc[i][j] += sum over k < n of w[k][i] * x[k][j]; `w` has rows of `ld`.
template <int N> static inline void product(const float *w, int ld, const V *x, int n, V (&acc)[N][NV]) {
    for (int k = 0; k < n; k++, w += ld, x += NV) {
        V v[NV];
#pragma GCC unroll 8
        for (int j = 0; j < NV; j++)
            v[j] = x[j];
#pragma GCC unroll 16
        for (int i = 0; i < N; i++) {
            const V weight = all(w[i]);
#pragma GCC unroll 8
            for (int j = 0; j < NV; j++)
                acc[i][j] += weight * v[j];
        }
    }
}

// A panel through a layer: q = clip(round(offset + w x)), and where that passes a gradient. `ends` holds for each
// output the clip bounds, and the bounds between which its gradient passes.
template <int N>
static void forwards(const float *w, const float *offset, const float *ends, int outputs, int inputs, int o,
                     const V *x, V *q, V *inside) {
    V acc[N][NV];
#pragma GCC unroll 16
    for (int i = 0; i < N; i++)
#pragma GCC unroll 8
        for (int j = 0; j < NV; j++)
            acc[i][j] = all(offset[o + i]);
    product<N>(w + o, outputs, x, inputs, acc);
#pragma GCC unroll 16
    for (int i = 0; i < N; i++) {
        const float *e = ends + 4 * (o + i);
#pragma GCC unroll 8
        for (int j = 0; j < NV; j++) {
            const V v = acc[i][j];
            q[(o + i) * NV + j] = rounded(clamp(v, e[0], e[1]));
            inside[(o + i) * NV + j] = (V)((v > e[2]) & (v < e[3]));
        }
    }
}

// A panel's gradients back through a layer: `into` holds where they pass, and then what passed. With batch norm (h is
// not null) its statistics' share joins: constant + h (x - mean), the mean within the constant.
template <int N>
static void backwards(const float *w, int outputs, int inputs, int o, const V *g, const float *h,
                      const float *constant, const V *x, V *into) {
    V acc[N][NV] = {};
    if (h) {
#pragma GCC unroll 16
        for (int i = 0; i < N; i++)
#pragma GCC unroll 8
            for (int j = 0; j < NV; j++)
                acc[i][j] = all(constant[o + i]);
        product<N>(h + o, inputs, x, inputs, acc);
    }
    product<N>(w + o, inputs, g, outputs, acc);
#pragma GCC unroll 16
    for (int i = 0; i < N; i++)
#pragma GCC unroll 8
        for (int j = 0; j < NV; j++)
            into[(o + i) * NV + j] = keep(acc[i][j], (I)into[(o + i) * NV + j]);
}

// into[m][k] += sum over all rows of g[m][row] * x[k][row], for N features of g's `wide` and Q of x's `inputs`.
template <int N, int Q>
static void outer(const V *g, int wide, const V *x, int inputs, int m, int k, int panels, float *into) {
    V acc[T * T] = {};
    g += (size_t)m * NV, x += (size_t)k * NV;
    for (int p = 0; p < panels; p++, g += (size_t)wide * NV, x += (size_t)inputs * NV) {
#pragma GCC unroll 8
        for (int j = 0; j < NV; j++) {
#pragma GCC unroll 8
            for (int i = 0; i < N; i++) {
#pragma GCC unroll 8
                for (int q = 0; q < Q; q++)
                    acc[i * T + q] += g[i * NV + j] * x[q * NV + j];
            }
        }
    }
    float found[T * T];
    for (int i = 0; i < T * T; i += L) {
        const V s = sums<L, L>(acc + i);
        std::memcpy(found + i, &s, sizeof s);
    }
    for (int i = 0; i < N; i++)
        for (int q = 0; q < Q; q++)
            into[(size_t)(m + i) * inputs + k + q] += found[i * T + q];
}
template <bool LOWER = false>
static void outers(const V *g, int wide, const V *x, int inputs, int panels, float *into) {
    tiles<T>(wide, [&](auto a, int m) {
        tiles<T>(inputs, [&](auto b, int k) {
            if (!LOWER || k <= m)
                outer<decltype(a)::value, decltype(b)::value>(g, wide, x, inputs, m, k, panels, into);
        });
    });
}
// into[i][k] += sum over all rows of x[i][row] * x[k][row]: one half, and its mirror image.
static void squares(const V *x, int width, int panels, float *into) {
    outers<true>(x, width, x, width, panels, into);
    for (int i = 0; i < width; i++)
        for (int k = i + 1; k < width; k++)
            into[(size_t)i * width + k] = into[(size_t)k * width + i];
}

// into[m] += the sum over all rows of g[m][row].
static void row_sums(const V *g, int wide, int panels, float *into) {
    for (int m = 0; m < wide; m++) {
        V total{};
        for (int p = 0; p < panels; p++)
            for (int j = 0; j < NV; j++)
                total += g[((size_t)p * wide + m) * NV + j];
        into[m] += sum(total);
    }
}

// Rows `order` of x, `width` floats each, as panels; the last panel's missing rows are 0.
static void gather(const float *x, int width, const int64_t *order, int rows, V *into) {
    constexpr int AHEAD = 16;
    float *to = (float *)into;
    for (int p = 0; p < rows; p += P, to += (size_t)P * width) {
        const int here = std::min(P, rows - p);
        for (int r = 0; r < here; r++) {
            if (p + r + AHEAD < rows)
                __builtin_prefetch(x + order[p + r + AHEAD] * width);
            const float *from = x + order[p + r] * width;
            for (int k = 0; k < width; k++)
                to[k * P + r] = from[k];
        }
        for (int r = here; r < P; r++)
            for (int k = 0; k < width; k++)
                to[k * P + r] = 0.0f;
    }
}

// Adam (arXiv:1412.6980) with torch's fused formulas; `l1` is the weight of sum |p| in the loss, `decay` of p^2 / 2.
struct Adam {
    std::vector<float> first, second;
    void open(size_t n) { first.assign(n, 0.0f), second.assign(n, 0.0f); }
    void step(float *__restrict p, const float *__restrict g, double rate, double decay, double l1, int64_t t) {
        const float size = (float)(rate / (1.0 - std::pow(0.9, (double)t)));
        const float root = (float)std::sqrt(1.0 - std::pow(0.999, (double)t));
        const float pull = (float)decay, sparse = (float)l1;
        float *__restrict a = first.data(), *__restrict b = second.data();
        const size_t n = first.size();
        for (size_t i = 0; i < n; i++) {
            const float w = p[i];
            const float d = g[i] + (w > 0.0f ? sparse : w < 0.0f ? -sparse : 0.0f) + w * pull;
            a[i] += 0.1f * (d - a[i]);
            b[i] = b[i] * 0.999f + 0.001f * d * d;
            p[i] = w - size * a[i] / (std::sqrt(b[i]) / root + 1e-8f);
        }
    }
};
"""
"""Vectors, products and Adam; the first part of the compiled file."""
