/* Self-attention of [rows, n0 places, 3·n1] with n2 heads; n3 causal, n4 masked. A thread per query (or per key, for their gradients)
   goes through the keys (or queries), of which a block holds some in shared memory. */
#define NEAR 32

struct Heads {
    uint32_t places, wide, size, head, row, block;
    float scale;
};
/* Blocks are [row][head][chunk of THREADS / 2 places]. */
#define LINE (THREADS / 2)
FN Heads heads_of(const Args &a, uint32_t block) {
    const uint32_t chunks = (a.n[0] + LINE - 1) / LINE, size = a.n[1] / a.n[2];
    return {(uint32_t)a.n[0], (uint32_t)a.n[1], size, block / chunks % a.n[2], block / (chunks * a.n[2]), block % chunks, rsqrtf((float)size)};
}

template <int SIZE> FN void attention_forward(const Args &a) {
    BEGIN;
    __shared__ float keys[NEAR][SIZE], values[NEAR][SIZE], hidden[NEAR];
    const Heads s = heads_of(a, block);
    if (s.row >= rows) return;
    const uint32_t query = s.block * LINE + threadIdx.x;
    const real *x = RX(0) + (size_t)s.row * s.places * 3 * s.wide + s.head * s.size;
    const float *mask = a.n[4] ? X(1) + s.row * s.places : nullptr;
    float q[SIZE], out[SIZE], most = -1e29f, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < SIZE; ++i) {
        q[i] = query < s.places && i < s.size ? x[(size_t)query * 3 * s.wide + i] : 0.0f;
        out[i] = 0.0f;
    }
    const uint32_t end = a.n[3] ? min(s.places, (s.block + 1) * LINE) : s.places;
    for (uint32_t first = 0; first < end; first += NEAR) {
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < NEAR * SIZE; i += LINE) {
            const uint32_t key = first + i / SIZE, c = i % SIZE;
            const int there = key < s.places && c < s.size;
            keys[i / SIZE][c] = there ? x[(size_t)key * 3 * s.wide + s.wide + c] : 0.0f;
            values[i / SIZE][c] = there ? x[(size_t)key * 3 * s.wide + 2 * s.wide + c] : 0.0f;
        }
        if (threadIdx.x < NEAR) hidden[threadIdx.x] = first + threadIdx.x >= s.places || (mask && mask[first + threadIdx.x] == 0.0f);
        __syncthreads();
        for (uint32_t k = 0; k < NEAR; ++k) {
            if (hidden[k] != 0.0f || (a.n[3] && first + k > query)) continue;
            float score = 0.0f;
#pragma unroll
            for (int i = 0; i < SIZE; ++i) score = fmaf(q[i], keys[k][i], score);
            score *= s.scale;
            if (score > most) {
                const float keep = expf(most - score);
                sum *= keep;
#pragma unroll
                for (int i = 0; i < SIZE; ++i) out[i] *= keep;
                most = score;
            }
            const float weight = expf(score - most);
            sum += weight;
#pragma unroll
            for (int i = 0; i < SIZE; ++i) out[i] = fmaf(weight, values[k][i], out[i]);
        }
    }
    if (query >= s.places) return;
    real *y = RY(0) + ((size_t)s.row * s.places + query) * s.wide + s.head * s.size;
    for (int i = 0; i < SIZE; ++i)
        if (i < s.size) y[i] = sum == 0.0f ? 0.0f : out[i] / sum;
    if (Y(1)) Y(1)[((size_t)s.row * a.n[2] + s.head) * s.places + query] = sum == 0.0f ? 1e30f : most + logf(sum);
}

/* Gradients of queries, and Σ dy·y of each in the scratch. */
template <int SIZE> FN void attention_queries(const Args &a) {
    BEGIN;
    __shared__ float keys[NEAR][SIZE], values[NEAR][SIZE], hidden[NEAR];
    const Heads s = heads_of(a, block);
    if (s.row >= rows) return;
    const uint32_t query = s.block * LINE + threadIdx.x;
    const real *x = RX(0) + (size_t)s.row * s.places * 3 * s.wide + s.head * s.size;
    const float *mask = a.n[4] ? X(1) + s.row * s.places : nullptr;
    const size_t at = ((size_t)s.row * s.places + query) * s.wide + s.head * s.size, log_at = ((size_t)s.row * a.n[2] + s.head) * s.places + query;
    const real *y = RY(0), *dy = RDY(0);
    float q[SIZE], d[SIZE], out[SIZE], mean = 0.0f;
#pragma unroll
    for (int i = 0; i < SIZE; ++i) {
        const int there = query < s.places && i < s.size;
        q[i] = there ? x[(size_t)query * 3 * s.wide + i] : 0.0f;
        d[i] = there ? dy[at + i] : 0.0f;
        mean += there ? d[i] * y[at + i] : 0.0f;
        out[i] = 0.0f;
    }
    const float log_sum = query < s.places ? Y(1)[log_at] : 0.0f;
    const uint32_t end = a.n[3] ? min(s.places, (s.block + 1) * LINE) : s.places;
    for (uint32_t first = 0; first < end; first += NEAR) {
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < NEAR * SIZE; i += LINE) {
            const uint32_t key = first + i / SIZE, c = i % SIZE;
            const int there = key < s.places && c < s.size;
            keys[i / SIZE][c] = there ? x[(size_t)key * 3 * s.wide + s.wide + c] : 0.0f;
            values[i / SIZE][c] = there ? x[(size_t)key * 3 * s.wide + 2 * s.wide + c] : 0.0f;
        }
        if (threadIdx.x < NEAR) hidden[threadIdx.x] = first + threadIdx.x >= s.places || (mask && mask[first + threadIdx.x] == 0.0f);
        __syncthreads();
        for (uint32_t k = 0; k < NEAR; ++k) {
            if (hidden[k] != 0.0f || (a.n[3] && first + k > query)) continue;
            float score = 0.0f, dp = 0.0f;
#pragma unroll
            for (int i = 0; i < SIZE; ++i) {
                score = fmaf(q[i], keys[k][i], score);
                dp = fmaf(d[i], values[k][i], dp);
            }
            const float ds = expf(score * s.scale - log_sum) * (dp - mean) * s.scale;
#pragma unroll
            for (int i = 0; i < SIZE; ++i) out[i] = fmaf(ds, keys[k][i], out[i]);
        }
    }
    if (query >= s.places) return;
    real *dx = RDX(0) + ((size_t)s.row * s.places + query) * 3 * s.wide + s.head * s.size;
    for (int i = 0; i < SIZE; ++i)
        if (i < s.size) dx[i] = out[i];
    SCRATCH[log_at] = mean;
}
/* Gradients of keys and values, after those of queries. */
template <int SIZE> FN void attention_keys(const Args &a) {
    BEGIN;
    __shared__ float queries[NEAR][SIZE], slopes[NEAR][SIZE], logs[NEAR], means[NEAR];
    const Heads s = heads_of(a, block);
    if (s.row >= rows) return;
    const uint32_t key = s.block * LINE + threadIdx.x;
    const real *x = RX(0) + (size_t)s.row * s.places * 3 * s.wide + s.head * s.size, *dy = RDY(0) + (size_t)s.row * s.places * s.wide + s.head * s.size;
    const size_t lines = ((size_t)s.row * a.n[2] + s.head) * s.places;
    const float *log_sums = Y(1) + lines, *all_means = SCRATCH + lines;
    const int seen = key < s.places && !(a.n[4] && X(1)[s.row * s.places + key] == 0.0f);
    float k[SIZE], v[SIZE], dk[SIZE], dv[SIZE];
#pragma unroll
    for (int i = 0; i < SIZE; ++i) {
        const int there = key < s.places && i < s.size;
        k[i] = there ? x[(size_t)key * 3 * s.wide + s.wide + i] : 0.0f;
        v[i] = there ? x[(size_t)key * 3 * s.wide + 2 * s.wide + i] : 0.0f;
        dk[i] = dv[i] = 0.0f;
    }
    for (uint32_t first = a.n[3] ? s.block * LINE / NEAR * NEAR : 0; first < s.places; first += NEAR) {
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < NEAR * SIZE; i += LINE) {
            const uint32_t query = first + i / SIZE, c = i % SIZE;
            const int there = query < s.places && c < s.size;
            queries[i / SIZE][c] = there ? x[(size_t)query * 3 * s.wide + c] : 0.0f;
            slopes[i / SIZE][c] = there ? dy[(size_t)query * s.wide + c] : 0.0f;
        }
        if (threadIdx.x < NEAR && first + threadIdx.x < s.places) {
            logs[threadIdx.x] = log_sums[first + threadIdx.x];
            means[threadIdx.x] = all_means[first + threadIdx.x];
        }
        __syncthreads();
        for (uint32_t j = 0; j < NEAR && first + j < s.places; ++j) {
            if (!seen || (a.n[3] && key > first + j)) continue;
            float score = 0.0f, dp = 0.0f;
#pragma unroll
            for (int i = 0; i < SIZE; ++i) {
                score = fmaf(k[i], queries[j][i], score);
                dp = fmaf(v[i], slopes[j][i], dp);
            }
            const float p = expf(score * s.scale - logs[j]), ds = p * (dp - means[j]) * s.scale;
#pragma unroll
            for (int i = 0; i < SIZE; ++i) {
                dk[i] = fmaf(ds, queries[j][i], dk[i]);
                dv[i] = fmaf(p, slopes[j][i], dv[i]);
            }
        }
    }
    if (key >= s.places) return;
    real *dx = RDX(0) + ((size_t)s.row * s.places + key) * 3 * s.wide + s.head * s.size;
    for (int i = 0; i < SIZE; ++i)
        if (i < s.size) {
            dx[s.wide + i] = dk[i];
            dx[2 * s.wide + i] = dv[i];
        }
}
#define HALF_KERNEL(name) extern "C" __global__ void __launch_bounds__(LINE) name(const __grid_constant__ Args a)
#define ATTENTION(size)                                                        \
    HALF_KERNEL(attention_forward_##size) { attention_forward<size>(a); }      \
    HALF_KERNEL(attention_queries_##size) { attention_queries<size>(a); }      \
    HALF_KERNEL(attention_keys_##size) { attention_keys<size>(a); }
ATTENTION(4)
ATTENTION(8)
ATTENTION(16)
ATTENTION(32)
ATTENTION(64)
