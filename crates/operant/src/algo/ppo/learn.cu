/* Learning, after collect.cu: every epoch and minibatch in one launch, `learn`; `tell` gathers what the host wants to know.
   Defined before this text too: LEARN_WARPS (of a block), STATISTICS, MAX_EPOCHS, MAX_UPDATES (epochs times minibatches). */

/* STATISTICS: policy loss, value loss, entropy, -ln ratio, ratio - 1 - ln ratio, clipped, the gradient's norm; one unused. */

struct LearnArgs {
    Rollout rollout;
    NetWords *image;               /* [2] */
    float *params, *mean, *square; /* [PARAMS]: weights and Adam's moments */
    float2 *partial;               /* [blocks, 2, GROUPS, 32] */
    double2 *sums;                 /* [epochs * minibatches, blocks]: of advantages and their squares */
    float *squares;                /* [blocks]: of gradients */
    float *statistics;             /* [blocks, STATISTICS] of a minibatch */
    float *report;                 /* [STATISTICS]: means of the last minibatch */
    uint32_t *barrier;             /* counts on from launch to launch */
    uint32_t envs, steps, epochs, minibatches, barrier_start, adam_step;
    float learning_rate, clip, entropy, value, max_norm, eps, beta1, beta2;
    uint32_t normalise, clip_value;
    Order orders[MAX_EPOCHS];
};

/* What a warp reads of 16 samples; the last column is the log-probability for the policy, the old value for the value. */
struct TileData {
    float obs[16 * OBS];
    float action[16 * (CONTINUOUS ? OUT : 1)];
    float advantage[16], old[16];
};
#define TILE_CHUNKS ((int)sizeof(TileData) / 16)

#if PART != COLLECTING

FN void fetch_tile(const LearnArgs &a, TileData *to, uint32_t block, int critic, int lane) {
    const int obs_chunks = OBS * 4, action_chunks = CONTINUOUS ? OUT * 4 : 4;
#pragma unroll
    for (int first = 0; first < TILE_CHUNKS; first += 32) {
        const int i = first + lane;
        if (i < TILE_CHUNKS) {
            const int j = i - obs_chunks, k = j - action_chunks;
            const float4 *from = j < 0   ? (const float4 *)a.rollout.obs + (size_t)block * obs_chunks + i
                                 : k < 0 ? (const float4 *)a.rollout.action + (size_t)block * action_chunks + j
                                 : k < 4 ? (const float4 *)a.rollout.advantage + (size_t)block * 4 + k
                                         : (const float4 *)(critic ? a.rollout.value : a.rollout.log_prob) + (size_t)block * 4 + k - 4;
            const uint32_t at = (uint32_t)__cvta_generic_to_shared((float4 *)to + i);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
        }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* All blocks of the grid are here at once: a cooperative launch. */
FN void wait_for_all(uint32_t *barrier, uint32_t &target) {
    __syncthreads();
    target += gridDim.x;
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(barrier, 1u);
        while ((int32_t)(*(volatile uint32_t *)barrier - target) < 0) {}
        __threadfence();
    }
    __syncthreads();
}

/* The gradients that a warp has added up. */
struct Gradients {
    float w2[KS][NT][4];
    float first[KS][4]; /* W1, b1 */
#if !SHARED_COLUMNS
    float last[KS][4]; /* b2, W3 transposed */
#endif
    float b3[2];
#if CONTINUOUS
    float log_std[2];
#endif
};

#if SHARED_COLUMNS
#define LAST first
#else
#define LAST last
#endif

/* Over the four lanes of a row. */
FN float quad_sum(float x) {
#if ONE_LANE
    return x;
#endif
    x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
    return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}
FN float quad_max(float x) {
#if ONE_LANE
    return x;
#endif
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}

/* dy of the policy: `y` holds logits or means of two rows, and becomes the gradient. */
FN void policy_slopes(const LearnArgs &a, const TileData *tile, int g, int t, float mean, float scale, float share, const float *log_std,
                      float *y, float *statistics, Gradients &d) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int at = g + 8 * r;
        const float old = tile->old[at], advantage = (tile->advantage[at] - mean) * scale;
        float *u = y + 2 * r;
        float log_prob, entropy;
#if CONTINUOUS
        float z[2] = {0.0f, 0.0f}, part = 0.0f, spread = 0.0f;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int output = 2 * t + k - FIRST_OUTPUT;
            if (output >= 0 && output < OUT) {
                const float number = tile->action[at * OUT + output];
                z[k] = (number - u[k]) * __expf(-log_std[k]);
                part -= 0.5f * z[k] * z[k] + log_std[k] + 0.91893853f;
                spread += log_std[k] + 1.41893853f;
            }
        }
        log_prob = quad_sum(part);
        entropy = quad_sum(spread);
#else
        const int action = bits(tile->action[at]);
        const int first = 2 * t - FIRST_OUTPUT;
        const bool has0 = first >= 0 && first < OUT, has1 = first >= -1 && first + 1 < OUT;
        const float most = quad_max(fmaxf(has0 ? u[0] : -1e30f, has1 ? u[1] : -1e30f));
        float e0 = has0 ? __expf(u[0] - most) : 0.0f, e1 = has1 ? __expf(u[1] - most) : 0.0f;
        const float total = quad_sum(e0 + e1), log_total = most + __logf(total), inverse = __fdividef(1.0f, total);
        const float l0 = u[0] - log_total, l1 = u[1] - log_total, p0 = e0 * inverse, p1 = e1 * inverse;
        entropy = -quad_sum((has0 ? p0 * l0 : 0.0f) + (has1 ? p1 * l1 : 0.0f));
        log_prob = quad_sum(action == first ? l0 : action == first + 1 ? l1 : 0.0f);
#endif
        const float log_ratio = log_prob - old, ratio = __expf(log_ratio);
        const float limited = fminf(fmaxf(ratio, 1.0f - a.clip), 1.0f + a.clip);
        const float free_loss = -advantage * ratio, limited_loss = -advantage * limited;
        const float by_log_prob = free_loss >= limited_loss ? free_loss * share : 0.0f;
        if (t == FIRST_OUTPUT / 2) {
            statistics[0] += fmaxf(free_loss, limited_loss);
            statistics[64] += entropy;
            statistics[96] -= log_ratio;
            statistics[128] += ratio - 1.0f - log_ratio;
            statistics[160] += fabsf(ratio - 1.0f) > a.clip ? 1.0f : 0.0f;
        }
#if CONTINUOUS
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const bool has = 2 * t + k >= FIRST_OUTPUT && 2 * t + k - FIRST_OUTPUT < OUT;
            u[k] = has ? by_log_prob * z[k] * __expf(-log_std[k]) : 0.0f;
            if (has) d.log_std[k] += by_log_prob * (z[k] * z[k] - 1.0f) - a.entropy * share;
        }
#else
        const float by_entropy = a.entropy * share;
        u[0] = has0 ? by_log_prob * ((action == first ? 1.0f : 0.0f) - p0) + by_entropy * p0 * (l0 + entropy) : 0.0f;
        u[1] = has1 ? by_log_prob * ((action == first + 1 ? 1.0f : 0.0f) - p1) + by_entropy * p1 * (l1 + entropy) : 0.0f;
#endif
    }
}

/* dy of the value: one column, in one lane of four. */
FN void value_slopes(const LearnArgs &a, const TileData *tile, int g, int t, float share, float *y, float *statistics) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float old = tile->old[g + 8 * r], returns = tile->advantage[g + 8 * r] + old;
        const float value = y[2 * r + FIRST_OUTPUT % 2];
        const float moved = value - old, error = value - returns;
        const float near = old + fminf(fmaxf(moved, -a.clip), a.clip) - returns;
        float squared = error * error, by_value = error;
        if (a.clip_value && near * near > squared) squared = near * near, by_value = fabsf(moved) <= a.clip ? near : 0.0f;
        if (t == FIRST_OUTPUT / 2) statistics[32] += 0.5f * squared;
        y[2 * r] = y[2 * r + 1] = 0.0f;
        if (t == FIRST_OUTPUT / 2) y[2 * r + FIRST_OUTPUT % 2] = by_value * a.value * share;
    }
}

/* The way back: from dy to the gradients of all weights. */
FN void backward(const NetWords *net, int lane, uint32_t x0, uint32_t x1, const uint32_t *h1, const uint32_t *h2,
                 const float *dy, Gradients &d) {
    const uint32_t dy0 = pack2(dy[0], dy[1]), dy1 = pack2(dy[2], dy[3]);
    d.b3[0] += dy[0] + dy[2];
    d.b3[1] += dy[1] + dy[3];
    const uint32_t ones = lane / 4 == B2_COLUMN ? BF16_ONES : 0u;
    uint32_t dz[KS * 4];
#pragma unroll
    for (int n = 0; n < NT; n++) {
        float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        mma8(c, dy0, dy1, net->w3_back[n * 32 + lane]);
        const int at = n / 2 * 4 + n % 2 * 2;
        dz[at] = pack2(c[0] * slope(low_of(h2[at])), c[1] * slope(high_of(h2[at])));
        dz[at + 1] = pack2(c[2] * slope(low_of(h2[at + 1])), c[3] * slope(high_of(h2[at + 1])));
    }
    {
    const uint32_t b0 = turn(x0), b1 = turn(x1);
#pragma unroll
    for (int m = 0; m < KS; m++) {
        uint32_t dh[4];
        float c[4] = {0.0f, 0.0f, 0.0f, 0.0f}, c_next[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int j = 0; j < KS / 2; j++) {
            const uint4 w = net->w2_back[(2 * m * (KS / 2) + j) * 32 + lane];
            const uint4 w_next = net->w2_back[((2 * m + 1) * (KS / 2) + j) * 32 + lane];
            mma16(c, dz + 8 * j, w.x, w.y);
            mma16(c_next, dz + 8 * j, w_next.x, w_next.y);
            mma16(c, dz + 8 * j + 4, w.z, w.w);
            mma16(c_next, dz + 8 * j + 4, w_next.z, w_next.w);
        }
        dh[0] = pack2(c[0] * slope(low_of(h1[4 * m])), c[1] * slope(high_of(h1[4 * m])));
        dh[1] = pack2(c[2] * slope(low_of(h1[4 * m + 1])), c[3] * slope(high_of(h1[4 * m + 1])));
        dh[2] = pack2(c_next[0] * slope(low_of(h1[4 * m + 2])), c_next[1] * slope(high_of(h1[4 * m + 2])));
        dh[3] = pack2(c_next[2] * slope(low_of(h1[4 * m + 3])), c_next[3] * slope(high_of(h1[4 * m + 3])));
        const uint32_t left[4] = {turn(dh[0]), turn(dh[2]), turn(dh[1]), turn(dh[3])};
        mma16(d.first[m], left, b0, b1);
    }
    }
    {
        const uint32_t b0 = turn(dy0), b1 = turn(dy1);
#pragma unroll
        for (int m = 0; m < KS; m++) {
            const uint32_t left[4] = {turn(h2[4 * m]), turn(h2[4 * m + 2]), turn(h2[4 * m + 1]), turn(h2[4 * m + 3])};
            mma16(d.LAST[m], left, b0, b1);
        }
    }
    {
        uint32_t right[NT * 2];
#pragma unroll
        for (int n = 0; n < NT; n++) {
            right[2 * n] = turn(h1[n / 2 * 4 + n % 2 * 2]);
            right[2 * n + 1] = turn(h1[n / 2 * 4 + n % 2 * 2 + 1]);
        }
#pragma unroll
        for (int m = 0; m < KS; m++) {
            const uint32_t left[4] = {turn(dz[4 * m]), turn(dz[4 * m + 2]), turn(dz[4 * m + 1]), turn(dz[4 * m + 3])};
            mma16(d.LAST[m], left, ones, ones);
#pragma unroll
            for (int n = 0; n < NT; n++) mma16(d.w2[m][n], left, right[2 * n], right[2 * n + 1]);
        }
    }
}

/* Stores a warp's gradients, or adds them to what is there, by groups. */
template <bool ADD> FN void add_gradients(float2 *sum, int critic, int lane, Gradients &d) {
    const int g = lane / 4;
    auto add = [&](int group, float x, float y) {
        float2 *to = sum + group * 32 + lane;
        if (ADD) x += to->x, y += to->y;
        *to = make_float2(x, y);
    };
#pragma unroll
    for (int m = 0; m < KS; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int n = 0; n < NT; n++) add((m * NT + n) * 2 + half, d.w2[m][n][2 * half], d.w2[m][n][2 * half + 1]);
            add(W2_GROUPS + m * 2 + half, d.first[m][2 * half], d.first[m][2 * half + 1]);
#if !SHARED_COLUMNS
            add(W2_GROUPS + KS * 2 + m * 2 + half, d.last[m][2 * half], d.last[m][2 * half + 1]);
#endif
        }
    }
    float rest[2];
#pragma unroll
    for (int k = 0; k < 2; k++) {
        float b3 = d.b3[k], log_std = 0.0f;
#if CONTINUOUS
        log_std = d.log_std[k];
#endif
#pragma unroll
        for (int other = 4; other < 32; other *= 2) {
            b3 += __shfl_xor_sync(0xFFFFFFFFu, b3, other);
            log_std += __shfl_xor_sync(0xFFFFFFFFu, log_std, other);
        }
        rest[k] = g == 0 ? b3 : g == 1 ? log_std : 0.0f;
    }
    add(GROUPS - 1, rest[0], rest[1]);
}

/* Sums of the advantages of every minibatch: a block takes its share of each. In f64: advantages that hardly differ have
   squares that hardly differ. */
FN void sum_advantages(const LearnArgs &a, const Order *orders, double2 *few, uint32_t of_minibatch) {
    const int thread = threadIdx.x, lane = thread % 32;
#pragma unroll 1
    for (uint32_t update = 0; update < a.epochs * a.minibatches; update++) {
        const Order &order = orders[update / a.minibatches];
        const uint32_t first = update % a.minibatches * of_minibatch;
        double total = 0.0, squares = 0.0;
        for (uint32_t place = blockIdx.x * (8 * LEARN_WARPS) + thread / 4; place < of_minibatch;
             place += gridDim.x * (8 * LEARN_WARPS)) {
            const float4 x = ((const float4 *)a.rollout.advantage)[(size_t)index_at(order, first + place) * 4 + thread % 4];
            total += (double)x.x + x.y + ((double)x.z + x.w);
            squares += (double)x.x * x.x + (double)x.y * x.y + ((double)x.z * x.z + (double)x.w * x.w);
        }
#pragma unroll
        for (int other = 16; other > 0; other /= 2) {
            total += __shfl_xor_sync(0xFFFFFFFFu, total, other);
            squares += __shfl_xor_sync(0xFFFFFFFFu, squares, other);
        }
        if (lane == 0) few[update * LEARN_WARPS + thread / 32] = make_double2(total, squares);
    }
    __syncthreads();
    for (uint32_t update = thread; update < a.epochs * a.minibatches; update += 32 * LEARN_WARPS) {
        double2 sum = few[update * LEARN_WARPS];
        for (int w = 1; w < LEARN_WARPS; w++) sum.x += few[update * LEARN_WARPS + w].x, sum.y += few[update * LEARN_WARPS + w].y;
        __stcg(&a.sums[update * gridDim.x + blockIdx.x], sum);
    }
}

extern "C" __global__ void __launch_bounds__(32 * LEARN_WARPS, 1) learn(const LearnArgs a) {
    extern __shared__ __align__(16) unsigned char memory[];
    NetWords *nets = (NetWords *)memory;
    TileData *tiles = (TileData *)(nets + 2);                /* [LEARN_WARPS, 2] */
    Order *orders = (Order *)(tiles + 2 * LEARN_WARPS);                    /* [epochs] */
    float *statistics_of_all = (float *)(orders + a.epochs);               /* [LEARN_WARPS, 6, 32] */
    float2 *scales = (float2 *)(statistics_of_all + LEARN_WARPS * 6 * 32); /* [MAX_UPDATES]: mean and 1 / deviation of advantages */
    /* Last, because sums of advantages, before there are gradients, may take more room than those. */
    float2 *sum = scales + MAX_UPDATES;  /* [2, GROUPS, 32] */
    float2 *few = sum + 2 * GROUPS * 32; /* [LEARN_WARPS, 32] */
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
    const int critic = warp % 2;
    const NetWords *net = nets + critic;
    const uint32_t of_minibatch = a.envs / 16 * a.steps / a.minibatches;
    const float share = 1.0f / (float)(of_minibatch * 16);
    uint32_t target = a.barrier_start;
    for (uint32_t i = thread; i < a.epochs * (sizeof(Order) / 4); i += 32 * LEARN_WARPS)
        ((uint32_t *)orders)[i] = ((const uint32_t *)a.orders)[i];
    __syncthreads();
    if (a.normalise) {
        sum_advantages(a, orders, (double2 *)sum, of_minibatch);
        wait_for_all(a.barrier, target);
        for (uint32_t update = warp; update < a.epochs * a.minibatches; update += LEARN_WARPS) {
            double x = 0.0, y = 0.0;
            for (uint32_t b = lane; b < gridDim.x; b += 32) {
                const double2 part = __ldcg(&a.sums[update * gridDim.x + b]);
                x += part.x, y += part.y;
            }
#pragma unroll
            for (int other = 16; other > 0; other /= 2) {
                x += __shfl_xor_sync(0xFFFFFFFFu, x, other);
                y += __shfl_xor_sync(0xFFFFFFFFu, y, other);
            }
            const double count = (double)of_minibatch * 16.0;
            const float deviation = sqrtf((float)fmax((y - x * x / count) / (count - 1.0), 0.0));
            if (lane == 0) scales[update] = make_float2((float)(x / count), 1.0f / (deviation + 1e-8f));
        }
        __syncthreads();
    }
#pragma unroll 1
    for (uint32_t update = 0; update < a.epochs * a.minibatches; update++) {
        load_image(nets, a.image, thread, 32 * LEARN_WARPS);
#if CONTINUOUS
        float log_std[2];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int output = 2 * t + k - FIRST_OUTPUT;
            log_std[k] = output >= 0 && output < OUT ? __ldcg(&a.params[LOG_STD + output]) : 0.0f;
        }
#else
        const float *log_std = nullptr;
#endif
        const float mean = a.normalise ? scales[update].x : 0.0f, scale = a.normalise ? scales[update].y : 1.0f;
        __syncthreads();

        /* Tiles: warps 2k and 2k + 1 take the same samples, one for the policy and one for the value. A tile is fetched while
           the one before it is worked on; of the next 32, each lane knows where one lies. */
        Gradients d = {};
        /* In memory, a number per lane: registers are scarce. */
        float *statistics = statistics_of_all + warp * 6 * 32 + lane;
#pragma unroll
        for (int k = 0; k < 6; k++) statistics[k * 32] = 0.0f;
        {
            const Order &order = orders[update / a.minibatches];
            const uint32_t first = update % a.minibatches * of_minibatch, stride = gridDim.x * (LEARN_WARPS / 2);
            const uint32_t begin = blockIdx.x * (LEARN_WARPS / 2) + warp / 2;
            const uint32_t count = begin < of_minibatch ? (of_minibatch - begin - 1) / stride + 1 : 0;
            TileData *mine = tiles + 2 * warp;
            uint32_t known = 0;
#pragma unroll 1
            for (uint32_t i = 0; i <= count; i++) {
                if (i < count) {
                    if (i % 32 == 0) known = index_at(order, first + min(begin + (i + lane) * stride, of_minibatch - 1));
                    fetch_tile(a, mine + i % 2, __shfl_sync(0xFFFFFFFFu, known, i % 32), critic, lane);
                    if (i == 0) continue;
                    asm volatile("cp.async.wait_group 1;" ::: "memory");
                } else {
                    if (i == 0) break;
                    asm volatile("cp.async.wait_group 0;" ::: "memory");
                }
                __syncwarp();
                const TileData *tile = mine + (i - 1) % 2;
                const uint32_t x0 = observed(tile->obs + g * OBS, t), x1 = observed(tile->obs + (g + 8) * OBS, t);
                uint32_t h1[KS * 4], h2[KS * 4];
                float y[4];
                forward(net, lane, x0, x1, h1, h2, y);
                if (critic)
                    value_slopes(a, tile, g, t, share, y, statistics);
                else
                    policy_slopes(a, tile, g, t, mean, scale, share, log_std, y, statistics, d);
                backward(net, lane, x0, x1, h1, h2, y, d);
                __syncwarp();
            }
        }

        /* Sums of the block, in the order of warps, then of the grid, in the order of blocks. */
        if (warp / 2 == 0) add_gradients<false>(sum + critic * GROUPS * 32, critic, lane, d);
#pragma unroll 1
        for (int turn_of = 1; turn_of < LEARN_WARPS / 2; turn_of++) {
            __syncthreads();
            if (warp / 2 == turn_of) add_gradients<true>(sum + critic * GROUPS * 32, critic, lane, d);
        }
#pragma unroll
        for (int k = 0; k < 6; k++) {
            float x = statistics[k * 32];
#pragma unroll
            for (int other = 16; other > 0; other /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, other);
            if (lane == 0) ((float *)few)[warp * 8 + k] = x;
        }
        __syncthreads();
        for (int i = thread; i < GROUPS * 32; i += 32 * LEARN_WARPS)
            __stcg((float4 *)(a.partial + (size_t)blockIdx.x * 2 * GROUPS * 32) + i, ((float4 *)sum)[i]);
        if (thread < 6) {
            float x = 0.0f;
            for (int w = 0; w < LEARN_WARPS; w++) x += ((float *)few)[w * 8 + thread];
            __stcg(&a.statistics[blockIdx.x * STATISTICS + thread], x);
        }
        wait_for_all(a.barrier, target);

        /* Each block adds up some groups over all blocks. */
        float own_squares = 0.0f;
        int turn_of = 0;
        for (uint32_t group = blockIdx.x; group < 2 * GROUPS; group += gridDim.x, turn_of++) {
            float2 x = make_float2(0.0f, 0.0f);
            for (uint32_t b = warp; b < gridDim.x; b += LEARN_WARPS) {
                const float2 part = __ldcg(&a.partial[((size_t)b * 2 * GROUPS + group) * 32 + lane]);
                x.x += part.x, x.y += part.y;
            }
            few[warp * 32 + lane] = x;
            __syncthreads();
            if (warp == 0) {
                for (int w = 1; w < LEARN_WARPS; w++) x.x += few[w * 32 + lane].x, x.y += few[w * 32 + lane].y;
                /* Columns without a parameter hold products of no meaning. */
                if (place_of(group / GROUPS, group % GROUPS, lane, 0) < 0) x.x = 0.0f;
                if (place_of(group / GROUPS, group % GROUPS, lane, 1) < 0) x.y = 0.0f;
                sum[turn_of * 32 + lane] = x;
                own_squares += x.x * x.x + x.y * x.y;
            }
            __syncthreads();
        }
        if (warp == 0) {
#pragma unroll
            for (int other = 16; other > 0; other /= 2) own_squares += __shfl_xor_sync(0xFFFFFFFFu, own_squares, other);
            if (lane == 0) __stcg(&a.squares[blockIdx.x], own_squares);
        }
        wait_for_all(a.barrier, target);
        if (warp == 0) {
            float all = 0.0f;
            for (uint32_t b = lane; b < gridDim.x; b += 32) all += __ldcg(&a.squares[b]);
#pragma unroll
            for (int other = 16; other > 0; other /= 2) all += __shfl_xor_sync(0xFFFFFFFFu, all, other);
            const float norm = sqrtf(all);
            const float shorter = a.max_norm > 0.0f && norm > a.max_norm ? a.max_norm / (norm + 1e-6f) : 1.0f;
            const float step = (float)(a.adam_step + update + 1);
            const float first_bias = -1.0f / expm1f(step * logf(a.beta1)), second_bias = -1.0f / expm1f(step * logf(a.beta2));
            turn_of = 0;
            for (uint32_t group = blockIdx.x; group < 2 * GROUPS; group += gridDim.x, turn_of++) {
                const float2 gradients = sum[turn_of * 32 + lane];
                float weights[2];
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    const int i = place_of(group / GROUPS, group % GROUPS, lane, k);
                    weights[k] = 0.0f;
                    if (i >= 0) {
                        const float gradient = (k == 0 ? gradients.x : gradients.y) * shorter;
                        const float m = a.beta1 * a.mean[i] + (1.0f - a.beta1) * gradient;
                        const float v = a.beta2 * a.square[i] + (1.0f - a.beta2) * gradient * gradient;
                        a.mean[i] = m, a.square[i] = v;
                        weights[k] = a.params[i] - a.learning_rate * m * first_bias / (sqrtf(v * second_bias) + a.eps);
                        __stcg(&a.params[i], weights[k]);
                    }
                }
                store_words(a.image + group / GROUPS, group / GROUPS, group % GROUPS, lane, weights[0], weights[1]);
            }
            if (blockIdx.x == 0 && update + 1 == a.epochs * a.minibatches) {
                if (lane < 6) {
                    float x = 0.0f;
                    for (uint32_t b = 0; b < gridDim.x; b++) x += __ldcg(&a.statistics[b * STATISTICS + lane]);
                    a.report[lane] = x * share;
                }
                if (lane == 6) a.report[lane] = norm;
            }
        }
        wait_for_all(a.barrier, target);
    }
}

#endif

/* ---- What the host wants to know, in one place ---- */

struct TellArgs {
    Envs envs;
    Finished finished;
    const float *report; /* [STATISTICS] */
    /* [STATISTICS + 3 * TOLD + 1]: the report, then returns, lengths and counts of the first envs, then how many episodes
       ended in all envs, modulo 2^32 */
    float *told;
};

#if PART != LEARNING
extern "C" __global__ void __launch_bounds__(TOLD) tell(const TellArgs a) {
    const uint32_t i = threadIdx.x;
    float *told = a.told + STATISTICS;
    __shared__ uint32_t ended;
    if (i == 0) ended = 0;
    __syncthreads();
    uint32_t own = 0;
    for (uint32_t slot = i; slot < TOTALS_SLOTS; slot += TOLD) own += (uint32_t)a.envs.totals[slot].episodes;
    atomicAdd(&ended, own);
    __syncthreads();
    if (i == 0) told[3 * TOLD] = from_bits((int32_t)ended);
    if (i < STATISTICS) a.told[i] = a.report[i];
    if (i < a.envs.count) {
        told[i] = a.finished.returned[i];
        told[TOLD + i] = from_bits(a.finished.length[i]);
        told[2 * TOLD + i] = from_bits((int32_t)a.finished.episodes[i]);
    }
}
#endif

static_assert(sizeof(NetWords) == NET_BYTES && sizeof(TileData) == TILE_BYTES && GROUPS == GROUP_COUNT, "algo/ppo/cuda.rs counts the same");
static_assert(sizeof(CollectArgs) == COLLECT_BYTES && sizeof(EvaluateArgs) == EVALUATE_BYTES && sizeof(EstimateArgs) == ESTIMATE_BYTES &&
                  sizeof(LearnArgs) == LEARN_BYTES && sizeof(TellArgs) == TELL_BYTES && sizeof(PrepareArgs) == PREPARE_BYTES && sizeof(MergeArgs) == MERGE_BYTES,
              "algo/ppo/cuda.rs has the same structs");
