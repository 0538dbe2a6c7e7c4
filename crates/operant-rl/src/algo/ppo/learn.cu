/* Learning, after collect.cu: every epoch and minibatch in one launch, `learn`. A minibatch's work is cut into slices, of which a
   block takes one or several; sums are made by slices, so that the number of blocks does not show in them.
   Defined before this text too: LEARN_WARPS (of a block), STATISTICS, MAX_EPOCHS, MAX_UPDATES (epochs times minibatches), SEVERAL_SLICES
   (whether a block may have more than one). */

/* STATISTICS: policy loss, value loss, entropy, -ln ratio, ratio - 1 - ln ratio, clipped, the gradient's norm; one unused. */

struct LearnArgs {
    Rollout rollout;
    NetWords *image;               /* [2] */
    float *params, *mean, *square; /* [PARAMS]: weights and Adam's moments */
    float2 *partial;               /* [slices, 2, GROUPS, 32] */
    double2 *sums;                 /* [epochs * minibatches, slices]: of advantages and their squares */
    float *squares;                /* [slices]: of gradients */
    float *statistics;             /* [slices, STATISTICS] of a minibatch */
    float *report;                 /* [STATISTICS]: means of the last minibatch */
    uint32_t *barrier;             /* counts on from launch to launch */
    uint32_t envs, steps, epochs, minibatches, slices, barrier_start, adam_step, unused; /* slices: at least as many as blocks */
    float learning_rate, clip, entropy, value, max_norm, eps, beta1, beta2;
    uint32_t normalise, clip_value;
    Order orders[MAX_EPOCHS];
};

#if PART != COLLECTING

/* Where 16 bytes of a tile come from: those of tile 0, and how far those of the next are. */
struct __align__(16) Source {
    const unsigned char *first;
    uint32_t step, unused;
};
FN Source source_of(const LearnArgs &a, int critic, int chunk) {
    const int obs_chunks = OBS * 4, action_chunks = CONTINUOUS ? OUT * 4 : 4;
    const int j = chunk - obs_chunks, k = j - action_chunks;
    if (j < 0) return {(const unsigned char *)a.rollout.obs + 16 * chunk, 16 * obs_chunks, 0};
    if (k < 0) return {(const unsigned char *)a.rollout.action + 16 * j, 16 * action_chunks, 0};
    if (k < 4) return {(const unsigned char *)a.rollout.advantage + 16 * k, 64, 0};
    return {(const unsigned char *)(critic ? a.rollout.value : a.rollout.log_prob) + 16 * (k - 4), 64, 0};
}
FN void fetch_tile(const Source *sources, TileData *to, uint32_t tile, int lane) {
#pragma unroll
    for (int first = 0; first < TILE_CHUNKS; first += 32) {
        if (first + lane < TILE_CHUNKS) {
            const Source source = sources[first + lane];
            copy16((uint4 *)to + first + lane, source.first + (size_t)tile * source.step);
        }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* A meeting of all blocks, which are here at once: the launch sees to that. What a block wrote before it came is seen by all
   that waited. */
FN void arrive(uint32_t *meeting) {
    __syncthreads();
    if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(meeting) : "memory");
}
FN void wait(uint32_t *meeting, uint32_t &target) {
    target += gridDim.x;
    if (threadIdx.x == 0) {
        uint32_t here;
        do {
            asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(here) : "l"(meeting) : "memory");
        } while ((int32_t)(here - target) < 0);
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
    }
    __syncthreads();
}

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

#define ROWS_APART (ONE_LANE && !CONTINUOUS)

/* Slopes are those of a sum over samples: half precision has no room for one sample's share of a mean, which is taken of the sums. */

/* dy of the policy: `y` holds logits or means of two rows, and becomes the gradient. */
FN void policy_slopes(const LearnArgs &a, const TileData *tile, int g, int t, float mean, float scale, const float *log_std,
                      float *y, bool counts, float *statistics, Gradients &d) {
#if ROWS_APART
    /* All outputs of two rows are in every fourth lane: its neighbour takes the second row. */
    const bool second = t != FIRST_OUTPUT / 2;
    const float u0 = __shfl_xor_sync(0xFFFFFFFFu, y[2], 1), u1 = __shfl_xor_sync(0xFFFFFFFFu, y[3], 1);
    if (second) y[0] = u0, y[1] = u1;
#else
    const bool second = false;
#endif
#pragma unroll
    for (int r = 0; r < 2 - ROWS_APART; r++) {
        const int at = g + 8 * (r + second);
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
        const int first = ROWS_APART ? 0 : 2 * t - FIRST_OUTPUT;
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
        const float by_log_prob = free_loss >= limited_loss ? free_loss : 0.0f;
        if (counts && (t == FIRST_OUTPUT / 2 || (ROWS_APART && t == (FIRST_OUTPUT / 2 ^ 1)))) {
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
            if (has) d.log_std[k] += by_log_prob * (z[k] * z[k] - 1.0f) - a.entropy;
        }
#else
        u[0] = has0 ? by_log_prob * ((action == first ? 1.0f : 0.0f) - p0) + a.entropy * p0 * (l0 + entropy) : 0.0f;
        u[1] = has1 ? by_log_prob * ((action == first + 1 ? 1.0f : 0.0f) - p1) + a.entropy * p1 * (l1 + entropy) : 0.0f;
#endif
    }
#if ROWS_APART
    y[2] = __shfl_xor_sync(0xFFFFFFFFu, y[0], 1), y[3] = __shfl_xor_sync(0xFFFFFFFFu, y[1], 1);
    if (second) y[0] = y[1] = y[2] = y[3] = 0.0f;
#endif
}

/* dy of the value: one column, in one lane of four. */
FN void value_slopes(const LearnArgs &a, const TileData *tile, int g, int t, float *y, bool counts, float *statistics) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float old = tile->old[g + 8 * r], returns = tile->advantage[g + 8 * r] + old;
        const float value = y[2 * r + FIRST_OUTPUT % 2];
        float by_value;
        const float squared = value_error(value, old, returns, a.clip, a.clip_value, by_value);
        if (counts && t == FIRST_OUTPUT / 2) statistics[32] += 0.5f * squared;
        y[2 * r] = y[2 * r + 1] = 0.0f;
        if (t == FIRST_OUTPUT / 2) y[2 * r + FIRST_OUTPUT % 2] = by_value * a.value;
    }
}

/* A warp's gradients but those of W2, by groups. */
template <class Add> FN void each_other(int lane, const Gradients &d, Add add) {
    const int g = lane / 4;
#pragma unroll
    for (int m = 0; m < KS; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
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

#if TOGETHER
#define OTHERS ((GROUPS - W2_GROUPS) * 32) /* pairs */
/* Stores the gradients of a block: W2's by the warps that have them, sums of all others over the warps, whose parts `parts` then has. */
FN void store_gradients(float2 *to, float2 *parts, int warp, int lane, const Gradients &d) {
    each_other(lane, d, [&](int group, float x, float y) {
        parts[warp * OTHERS + (group - W2_GROUPS) * 32 + lane] = make_float2(x, y);
    });
    if (warp < SHARERS) {
#pragma unroll
        for (int m = 0; m < 2; m++) {
#pragma unroll
            for (int n = 0; n < NT / 2; n++) {
                float2 *pairs = to + ((rows_of(warp) + m) * NT + columns_of(warp) + n) * 64 + lane;
                __stcg(pairs, make_float2(d.w2[m][n][0], d.w2[m][n][1]));
                __stcg(pairs + 32, make_float2(d.w2[m][n][2], d.w2[m][n][3]));
            }
        }
    }
    __syncthreads();
    for (int i = warp * 32 + lane; i < OTHERS; i += 32 * LEARN_WARPS) {
        float2 x = parts[i];
#pragma unroll
        for (int w = 1; w < LEARN_WARPS; w++) x.x += parts[w * OTHERS + i].x, x.y += parts[w * OTHERS + i].y;
        __stcg(to + W2_GROUPS * 32 + i, x);
    }
}
#else
/* Stores a warp's gradients, or adds them to what is there, by groups. */
template <bool ADD> FN void add_gradients(float2 *sum, int lane, const Gradients &d) {
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
        }
    }
    each_other(lane, d, add);
}
#endif

/* Sums of the advantages of every minibatch, of a slice of each: a warp takes some minibatches. In f64: advantages that hardly
   differ have squares that hardly differ. */
FN void sum_advantages(const LearnArgs &a, const Order *orders, uint32_t of_minibatch, uint32_t slice) {
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (uint32_t update = threadIdx.x / 32; update < a.epochs * a.minibatches; update += LEARN_WARPS) {
        const Order &order = orders[update / a.minibatches];
        const uint32_t first = update % a.minibatches * of_minibatch;
        double total = 0.0, squares = 0.0;
#pragma unroll 1
        for (uint32_t place = slice * 8 + lane / 4; place < of_minibatch; place += a.slices * 8 * 4) {
            float4 read[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const uint32_t at = place + a.slices * 8 * k;
                read[k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (at < of_minibatch) read[k] = ((const float4 *)a.rollout.advantage)[(size_t)index_at(order, first + at) * 4 + lane % 4];
            }
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float4 x = read[k];
                total += (double)x.x + x.y + ((double)x.z + x.w);
                squares += (double)x.x * x.x + (double)x.y * x.y + ((double)x.z * x.z + (double)x.w * x.w);
            }
        }
#pragma unroll
        for (int other = 16; other > 0; other /= 2) {
            total += __shfl_xor_sync(0xFFFFFFFFu, total, other);
            squares += __shfl_xor_sync(0xFFFFFFFFu, squares, other);
        }
        if (lane == 0) __stcg(&a.sums[update * a.slices + slice], make_double2(total, squares));
    }
}

#define LEARN_THREADS (32 * LEARN_WARPS)
/* The slices of a block. With one, all that follows from its number is known before the first minibatch: a loop in its place
   costs 4 % of an iteration. */
#if SEVERAL_SLICES
#define EACH_SLICE _Pragma("unroll 1") for (uint32_t slice = blockIdx.x; slice < a.slices; slice += gridDim.x)
#else
#define EACH_SLICE if (const uint32_t slice = blockIdx.x; true)
#endif
/* Pairs of numbers of both networks, in an order that all blocks share. */
#define PAIRS (2 * GROUPS * 32)
static_assert(LEARN_WARPS == 8, "sums of a block are made in two rounds");

extern "C" __global__ void __launch_bounds__(LEARN_THREADS, 1) learn(const LearnArgs a) {
    extern __shared__ __align__(16) unsigned char memory[];
    /* Weights while there are tiles, then a second place for sums. Where a block makes W2's gradient together, it has one network, and
       what tiles give lies behind its weights. */
    NetWords *nets = (NetWords *)memory;
    float2 *other_sum = (float2 *)memory; /* [PAIRS] */
#if TOGETHER
    Samples *samples = (Samples *)(nets + 1); /* [2, LEARN_WARPS] */
    const int room = sizeof(NetWords) + 2 * LEARN_WARPS * sizeof(Samples);
    static_assert(PAIRS * sizeof(float2) * 5 / 4 <= sizeof(NetWords) + 2 * LEARN_WARPS * sizeof(Samples), "all sums, and those of a fourth");
#else
    const int room = 2 * sizeof(NetWords) > PAIRS * sizeof(float2) ? 2 * sizeof(NetWords) : PAIRS * sizeof(float2);
#endif
    TileData *tiles = (TileData *)(memory + room);           /* [LEARN_WARPS, 2] */
    float4 *scales = (float4 *)(tiles + 2 * LEARN_WARPS);    /* [MAX_UPDATES]: see there */
    float *few = (float *)(scales + MAX_UPDATES);            /* [LEARN_WARPS, 8] */
    Order *orders = (Order *)(few + LEARN_WARPS * 8);        /* [MAX_EPOCHS] */
    Source *sources = (Source *)(orders + MAX_EPOCHS);       /* [2, TILE_CHUNKS] */
    /* While there are tiles: [LEARN_WARPS, 6, 32] statistics, and what warps keep of theirs. Then, in the same place, sums. */
    float *statistics_of_all = (float *)(sources + 2 * TILE_CHUNKS);
    unsigned char *kept_of_all = (unsigned char *)(statistics_of_all + LEARN_WARPS * 6 * 32);
    float2 *sum = TOGETHER ? other_sum + PAIRS : (float2 *)statistics_of_all; /* [PAIRS], or those of one of four slices or more */
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
    /* Warps 2k and 2k + 1 take the same samples, one for the policy and one for the value; of the two warps of a scheduler,
       warp and warp + 4, one takes each. Where a block has one network, those are slices 2k and 2k + 1. */
#if TOGETHER
#define NETWORK_OF(slice) ((slice) % 2)
    const NetWords *net = nets;
#else
#define NETWORK_OF(slice) ((warp ^ warp / 4) % 2)
    const NetWords *net = nets + NETWORK_OF(0);
#endif
    const uint32_t of_minibatch = a.envs / 16 * a.steps / a.minibatches, updates = a.epochs * a.minibatches;
    const float share = 1.0f / (float)(of_minibatch * 16);
    uint32_t target = a.barrier_start;
    for (uint32_t i = thread; i < a.epochs * (sizeof(Order) / 4); i += LEARN_THREADS)
        ((uint32_t *)orders)[i] = ((const uint32_t *)a.orders)[i];
    for (int i = thread; i < 2 * TILE_CHUNKS; i += LEARN_THREADS) sources[i] = source_of(a, i / TILE_CHUNKS, i % TILE_CHUNKS);
    __syncthreads();
    take_turn();

    /* Tiles of a minibatch: one is fetched while the one before it is worked on, the first before the last minibatch has ended.
       Of the next 32, each lane knows where one lies. */
    const uint32_t sets = TOGETHER ? a.slices / 2 : a.slices; /* of slices that have all samples */
    const uint32_t at_once = TOGETHER ? LEARN_WARPS : LEARN_WARPS / 2, stride = sets * at_once;
    const uint32_t rounds = of_minibatch / stride, rest = of_minibatch - rounds * stride;
    auto begin_of = [&](uint32_t slice) { return TOGETHER ? slice / 2 * at_once + warp : slice * at_once + warp / 2; };
    auto count_of = [&](uint32_t slice) { return rounds + (begin_of(slice) < rest); };
    TileData *mine = tiles + 2 * warp;
    uint32_t known = 0;
    auto fetch = [&](uint32_t update, uint32_t slice, uint32_t i) {
        if (i % 32 == 0) {
            const uint32_t begin = begin_of(slice);
            const uint32_t place = min(begin + (i + lane) * stride, of_minibatch - 1);
            known = index_at(orders[update / a.minibatches], update % a.minibatches * of_minibatch + place);
        }
        fetch_tile(sources + NETWORK_OF(slice) * TILE_CHUNKS, mine + i % 2, __shfl_sync(0xFFFFFFFFu, known, i % 32), lane);
    };
    if (count_of(blockIdx.x) > 0) fetch(0, blockIdx.x, 0);

    if (a.normalise) {
        EACH_SLICE sum_advantages(a, orders, of_minibatch, slice);
        arrive(a.barrier);
        wait(a.barrier, target);
    }
    /* Of each minibatch: mean and 1 / deviation of advantages, and what makes up for Adam's moments having begun as 0. */
    for (uint32_t update = warp; update < updates; update += LEARN_WARPS) {
        double x = 0.0, y = 0.0;
        for (uint32_t slice = lane; a.normalise && slice < a.slices; slice += 32) {
            const double2 part = __ldcg(&a.sums[update * a.slices + slice]);
            x += part.x, y += part.y;
        }
#pragma unroll
        for (int other = 16; other > 0; other /= 2) {
            x += __shfl_xor_sync(0xFFFFFFFFu, x, other);
            y += __shfl_xor_sync(0xFFFFFFFFu, y, other);
        }
        const double samples = (double)of_minibatch * 16.0;
        const float deviation = sqrtf((float)fmax((y - x * x / samples) / (samples - 1.0), 0.0));
        const float step = (float)(a.adam_step + update + 1);
        const float bias1 = -1.0f / expm1f(step * logf(a.beta1)), bias2 = -1.0f / expm1f(step * logf(a.beta2));
        if (lane == 0) scales[update] = make_float4((float)(x / samples), a.normalise ? 1.0f / (deviation + 1e-8f) : 1.0f, bias1, bias2);
    }
    /* The pairs that a slice adds up over all slices and steps with Adam: eights, because rows of weights are packed in twos. */
    const uint32_t per_slice = (PAIRS / 8 + a.slices - 1) / a.slices * 8, parts = max(2 * LEARN_THREADS / per_slice, 1u);
    auto first_pair_of = [&](uint32_t slice) { return min(slice * per_slice, PAIRS); };
    auto pairs_of = [&](uint32_t slice) { return min(per_slice, PAIRS - first_pair_of(slice)); };
    auto gradients_of = [&](uint32_t slice) { return other_sum + (SEVERAL_SLICES ? slice / gridDim.x * per_slice : 0); };
#pragma unroll 1
    for (uint32_t update = 0; update < updates; update++) {
        const bool last = update + 1 == updates;
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
        /* In memory, a number per lane: registers are scarce. */
        float *statistics = statistics_of_all + warp * 6 * 32 + lane;
        EACH_SLICE {
            const uint32_t count = count_of(slice);
            const int critic = NETWORK_OF(slice);
#if TOGETHER
            load_image(nets, a.image + critic, 1, thread, LEARN_THREADS);
            const uint32_t most = rounds + (slice / 2 * at_once < rest); /* tiles of a warp */
#else
            load_image(nets, a.image, 2, thread, LEARN_THREADS);
            const uint32_t most = count;
#endif
#pragma unroll
            for (int k = 0; k < 6; k++) statistics[k * 32] = 0.0f;
            __syncthreads();
            const float2 scale = *(const float2 *)&scales[update];

            Gradients d = {};
#pragma unroll 1
            for (uint32_t i = 0; i < most; i++) {
#if TOGETHER
                Samples *given = samples + i % 2 * LEARN_WARPS;
#else
                Samples *given = nullptr;
#endif
                if (!TOGETHER || i < count) {
                    if (i + 1 < count) {
                        fetch(update, slice, i + 1);
                        asm volatile("cp.async.wait_group 1;" ::: "memory");
                    } else {
                        asm volatile("cp.async.wait_group 0;" ::: "memory");
                    }
                    __syncwarp();
                    const TileData *tile = mine + i % 2;
                    uint32_t x[X_WORDS];
                    Kept kept = kept_in(kept_of_all + warp * KEPT_BYTES);
                    float y[4];
                    observed(tile->obs + g * OBS, tile->obs + (g + 8) * OBS, t, x);
                    forward<true>(net, lane, x, kept, y);
                    if (critic)
                        value_slopes(a, tile, g, t, y, last, statistics);
                    else
                        policy_slopes(a, tile, g, t, scale.x, scale.y, log_std, y, last, statistics, d);
                    backward(net, lane, tile, x, kept, y, d, given + warp);
                    __syncwarp();
                }
#if TOGETHER
                /* What tiles gave is read here and overwritten in the round after the next. */
                __syncthreads();
                const int tiles_given = i < rounds ? LEARN_WARPS : (int)min(rest - slice / 2 * at_once, (uint32_t)LEARN_WARPS);
                if (warp < SHARERS) {
#pragma unroll 1
                    for (int w = 0; w < tiles_given; w++) add_samples(given + w, warp, lane, d);
                }
#endif
            }
            const bool goes_on = SEVERAL_SLICES && slice + gridDim.x < a.slices;
            const uint32_t next = goes_on ? slice + gridDim.x : blockIdx.x;
            if ((goes_on || !last) && count_of(next) > 0) fetch(update + !goes_on, next, 0);
            if (last) {
#pragma unroll
                for (int k = 0; k < 6; k++) {
                    const float x = warp_sum(statistics[k * 32]);
                    if (lane == 0) few[warp * 8 + k] = x;
                }
            }

            /* Sums of the slice, of four warps for each network in an order that does not change, then of all slices. */
            __syncthreads();
#if TOGETHER
            store_gradients(a.partial + (size_t)(slice / 2) * PAIRS + critic * GROUPS * 32, (float2 *)samples, warp, lane, d);
#else
            float2 *to = (warp / 2 % 2 ? other_sum : sum) + critic * GROUPS * 32;
            if (warp < 4) add_gradients<false>(to, lane, d);
            __syncthreads();
            if (warp >= 4) add_gradients<true>(to, lane, d);
            __syncthreads();
            for (int i = thread; i < PAIRS / 2; i += LEARN_THREADS) {
                float4 x = ((float4 *)sum)[i];
                const float4 y = ((float4 *)other_sum)[i];
                x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
                __stcg((float4 *)(a.partial + (size_t)slice * PAIRS) + i, x);
            }
#endif
            if (last && thread < 6) {
                float x = 0.0f;
                for (int w = 0; w < LEARN_WARPS; w++) x += few[w * 8 + thread];
                __stcg(&a.statistics[slice * STATISTICS + thread], x);
            }
            /* Weights come to where sums were read. */
            if (goes_on) __syncthreads();
        }
        arrive(a.barrier);
        wait(a.barrier, target);

        /* Each slice adds up some pairs over all slices: two at a time, in parts, whose sums lie in `sum`. Those of all parts are
           kept where the other sums were. */
        EACH_SLICE {
            const uint32_t first_pair = first_pair_of(slice), pairs = pairs_of(slice);
            float2 *gradients = gradients_of(slice);
            for (uint32_t i = thread; i < pairs / 2 * parts; i += LEARN_THREADS) {
                const float4 *from = (const float4 *)(a.partial + first_pair) + i % (pairs / 2);
                float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
                for (uint32_t other = i / (pairs / 2); other < sets; other += 12 * parts) {
                    float4 read[12];
#pragma unroll
                    for (int k = 0; k < 12; k++) {
                        const uint32_t s = other + k * parts;
                        read[k] = s < sets ? __ldcg(from + (size_t)s * (PAIRS / 2)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                    }
#pragma unroll
                    for (int k = 0; k < 12; k++) x.x += read[k].x, x.y += read[k].y, x.z += read[k].z, x.w += read[k].w;
                }
                ((float4 *)sum)[i] = x;
            }
            __syncthreads();
            float squares = 0.0f;
            for (uint32_t p = thread; p < pairs; p += LEARN_THREADS) {
                const uint32_t pair = first_pair + p, group = pair / 32;
                float2 x = sum[p];
                for (uint32_t part = 1; part < parts; part++) x.x += sum[part * pairs + p].x, x.y += sum[part * pairs + p].y;
                /* Columns without a parameter hold products of no meaning. */
                x.x = place_of(group / GROUPS, group % GROUPS, pair % 32, 0) < 0 ? 0.0f : x.x * share;
                x.y = place_of(group / GROUPS, group % GROUPS, pair % 32, 1) < 0 ? 0.0f : x.y * share;
                gradients[p] = x;
                squares += x.x * x.x + x.y * x.y;
            }
            squares = warp_sum(squares);
            if (lane == 0) few[warp] = squares;
            __syncthreads();
            if (thread == 0) {
                for (int w = 1; w < LEARN_WARPS; w++) squares += few[w];
                __stcg(&a.squares[slice], squares);
            }
        }
        arrive(a.barrier);
        bool waited = false;
        EACH_SLICE {
            const uint32_t first_pair = first_pair_of(slice), pairs = pairs_of(slice);
            const float2 *gradients = gradients_of(slice);
#pragma unroll 1
            for (uint32_t p = thread; p - lane < pairs || !waited; p += LEARN_THREADS) {
                /* All that does not ask for the norm comes before the wait. */
                const bool counts = p < pairs;
                const uint32_t pair = first_pair + (counts ? p : 0), group = pair / 32;
                float weights[2], mean[2], square[2];
                int place[2];
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    place[k] = counts ? place_of(group / GROUPS, group % GROUPS, pair % 32, k) : -1;
                    weights[k] = mean[k] = square[k] = 0.0f;
                    if (place[k] >= 0) weights[k] = a.params[place[k]], mean[k] = a.mean[place[k]], square[k] = a.square[place[k]];
                }
                const float2 own = gradients[counts ? p : 0];
                const float4 scale = scales[update];
                if (!waited) wait(a.barrier, target);
                waited = true;
                if (p - lane >= pairs) break;
                float all = 0.0f;
#pragma unroll 1
                for (uint32_t s = lane; s < a.slices; s += 32 * 6) {
                    float read[6];
#pragma unroll
                    for (int k = 0; k < 6; k++) read[k] = s + 32 * k < a.slices ? __ldcg(&a.squares[s + 32 * k]) : 0.0f;
#pragma unroll
                    for (int k = 0; k < 6; k++) all += read[k];
                }
                const float norm = sqrtf(warp_sum(all));
                const float shorter = a.max_norm > 0.0f && norm > a.max_norm ? a.max_norm / (norm + 1e-6f) : 1.0f;
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    if (place[k] >= 0) {
                        const float gradient = (k == 0 ? own.x : own.y) * shorter;
                        const float m = a.beta1 * mean[k] + (1.0f - a.beta1) * gradient;
                        const float v = a.beta2 * square[k] + (1.0f - a.beta2) * gradient * gradient;
                        a.mean[place[k]] = m, a.square[place[k]] = v;
                        weights[k] -= a.learning_rate * m * scale.z / (sqrtf(v * scale.w) + a.eps);
                        __stcg(&a.params[place[k]], weights[k]);
                    }
                }
                store_words(a.image + group / GROUPS, group / GROUPS, group % GROUPS, pair % 32, weights[0], weights[1], counts);
                if (last && slice == 0 && warp == 0) {
                    if (lane < 6) {
                        float x = 0.0f;
                        for (uint32_t s = 0; s < a.slices; s++) x += __ldcg(&a.statistics[s * STATISTICS + lane]);
                        a.report[lane] = x * share;
                    }
                    if (lane == 6) a.report[lane] = norm;
                }
            }
        }
        if (!last) {
            arrive(a.barrier);
            wait(a.barrier, target);
        }
    }
}

#endif

static_assert(sizeof(ForwardWords) == FORWARD_BYTES && sizeof(NetWords) == NET_BYTES && sizeof(TileData) == TILE_BYTES && GROUPS == GROUP_COUNT, "algo/ppo/cuda.rs counts the same");
static_assert(sizeof(CollectArgs) == COLLECT_BYTES && sizeof(EvaluateArgs) == EVALUATE_BYTES && sizeof(LearnArgs) == LEARN_BYTES &&
                  sizeof(PrepareArgs) == PREPARE_BYTES,
              "algo/ppo/cuda/fused.rs has the same structs");
