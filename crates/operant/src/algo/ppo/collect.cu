/* PPO wholly on the GPU for small networks: separate policy and value networks of two hidden layers of HID (32 or 64),
   bf16 products on tensor cores with sums in f32, f32 master weights. Kernels after normalise.cu: `prepare` packs
   weights, `collect` plays T steps of all envs, `evaluate` values what they saw, `estimate` makes advantages; learn.cu goes on.
   Defined before this text, beside what adapter.cu asks for: HID OUT (logits, or numbers of an action) CONTINUOUS RELU
   TILES (16-env tiles of a warp in `collect`) WARPS (of a block in `collect`) TOLD (envs whose episodes are told), the
   offset of every tensor among the parameters: AW1 AB1 AW2 AB2 AW3 AB3 CW1 CB1 CW2 CB2 CW3 CB3 LOG_STD, and the sizes
   that the last lines hold to those of algo/ppo/cuda.rs. Of the two PARTs, COLLECTING and LEARNING, each is compiled by itself, both at
   the same time.

   A tile is 16 samples, the rows of an mma. Fragments: lane = 4 * g + t holds rows g and g + 8, columns 2t and 2t + 1. The sums of
   one layer are, packed, the left operand of the next. One column of an observation is 1, so that sums of gradients over
   samples (biases) come with the products. Where they fit, the gradients of W1, b1, b2 and W3 share the eight columns of
   one product: registers are what limits `learn`. */
static_assert(OBS <= 7 && OUT <= 7 && (HID == 32 || HID == 64), "shapes that these kernels serve");
#if OBS + 2 + OUT <= 8
#define SHARED_COLUMNS 1
#define ONE_COLUMN OBS
#define B2_COLUMN (OBS + 1)
#define FIRST_OUTPUT (OBS + 2)
#else
#define SHARED_COLUMNS 0
#define ONE_COLUMN 7
#define B2_COLUMN 7
#define FIRST_OUTPUT 0
#endif
/* Whether one lane has all outputs of a row. */
#define ONE_LANE (OUT <= 2 && FIRST_OUTPUT % 2 == 0)
#define NT (HID / 8)  /* tiles of columns */
#define KS (HID / 16) /* steps of a sum */
#define BF16_ONES 0x3f803f80u

FN uint32_t pack2(float low, float high) {
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

FN void mma16(float *c, const uint32_t *a, uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
FN void mma8(float *c, uint32_t a0, uint32_t a1, uint32_t b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b));
}
/* 8 by 8 numbers, a row over four lanes, become their transpose. */
FN uint32_t turn(uint32_t word) {
    uint32_t turned;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(word));
    return turned;
}
FN float activate(float x) {
#if RELU
    return fmaxf(x, 0.0f);
#else
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}
/* Minus what comes back to two numbers before their activation, which made `h` of them: h * h - 1 is one instruction. */
FN uint32_t minus_back(float c0, float c1, uint32_t h) {
    const uint32_t word = pack2(c0, c1);
#if RELU
    return (word ^ 0x80008000u) & ((h & 0x7fffu ? 0xffffu : 0u) | (h & 0x7fff0000u ? 0xffff0000u : 0u));
#else
    uint32_t slopes, product;
    asm("fma.rn.bf16x2 %0, %1, %1, %2;" : "=r"(slopes) : "r"(h), "r"(BF16_ONES | 0x80008000u));
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(word), "r"(slopes), "r"(0x80008000u));
    return product;
#endif
}

/* ---- Weights, in the order of fragments: an image of both networks that blocks copy to shared memory ---- */

struct NetWords {
    uint4 w2[NT * KS / 2 * 32];      /* x * W2^T */
    uint4 w2_back[NT * KS / 2 * 32]; /* dz * W2 */
    uint4 w3[KS / 2 * 32];
    uint32_t w1[NT * 32]; /* with b1 for the column of 1 */
    uint32_t w3_back[NT * 32];
    float4 b2[NT * 4]; /* as sums begin: two columns for two rows */
    float b3[8];
};
struct Offsets {
    int w1, b1, w2, b2, w3, b3, outputs;
};
FN Offsets offsets_of(int critic) {
    return critic ? Offsets{CW1, CB1, CW2, CB2, CW3, CB3, 1} : Offsets{AW1, AB1, AW2, AB2, AW3, AB3, OUT};
}

/* Parameters and gradients go by groups of two numbers per lane, as products leave them: W2, then W1 with b1, then W3 with
   b2, then b3 with log_std. */
#define W2_GROUPS (KS * NT * 2)
#define GROUPS (W2_GROUPS + KS * 2 * (2 - SHARED_COLUMNS) + 1)

/* Where number k of a lane's pair lies among the parameters, or -1. */
FN int place_of(int critic, int group, int lane, int k) {
    const Offsets o = offsets_of(critic);
    const int g = lane / 4, column = lane % 4 * 2 + k, output = column - FIRST_OUTPUT;
    if (group < W2_GROUPS) {
        const int row = group / (NT * 2) * 16 + group % 2 * 8 + g;
        return o.w2 + row * HID + group / 2 % NT * 8 + column;
    }
    if (group == GROUPS - 1) {
        if (g == 0) return output >= 0 && output < o.outputs ? o.b3 + output : -1;
        return CONTINUOUS && g == 1 && !critic && output >= 0 && output < OUT ? LOG_STD + output : -1;
    }
    group -= W2_GROUPS;
    const int row = group % (KS * 2) * 8 + g;
    if (group < KS * 2) {
        if (column < OBS) return o.w1 + row * OBS + column;
        if (column == ONE_COLUMN) return o.b1 + row;
    }
    if (group >= KS * 2 * (1 - SHARED_COLUMNS)) {
        if (output >= 0 && output < o.outputs) return o.w3 + output * HID + row;
        if (column == B2_COLUMN) return o.b2 + row;
    }
    return -1;
}

/* Writes the words that a group's parameters are in. A pair is two columns of a row; pairs of rows take a neighbour's. */
FN void store_words(NetWords *net, int critic, int group, int lane, float w0, float w1, int counts) {
    const int g = lane / 4, t = lane % 4, odd = g % 2;
    const float other0 = __shfl_xor_sync(0xFFFFFFFFu, w0, 4), other1 = __shfl_xor_sync(0xFFFFFFFFu, w1, 4);
    const uint32_t rows = odd ? pack2(other1, w1) : pack2(w0, other0);
    const int column = 2 * t + odd, turned = column * 4 + g / 2;
    if (!counts) return;
    if (group < W2_GROUPS) {
        const int m = group / (NT * 2), n = group / 2 % NT, half = group % 2;
        ((uint32_t *)net->w2)[(((m * 2 + half) * (KS / 2) + n / 4) * 32 + lane) * 4 + n % 4] = pack2(w0, w1);
        ((uint32_t *)net->w2_back)[((n * (KS / 2) + m / 2) * 32 + turned) * 4 + m % 2 * 2 + half] = rows;
        return;
    }
    const int outputs = offsets_of(critic).outputs;
    const bool out0 = 2 * t >= FIRST_OUTPUT && 2 * t - FIRST_OUTPUT < outputs;
    const bool out1 = 2 * t + 1 >= FIRST_OUTPUT && 2 * t + 1 - FIRST_OUTPUT < outputs;
    if (group == GROUPS - 1) {
        if (g == 0) net->b3[2 * t] = out0 ? w0 : 0.0f, net->b3[2 * t + 1] = out1 ? w1 : 0.0f;
        return;
    }
    group -= W2_GROUPS;
    const int tile = group % (KS * 2);
    if (group < KS * 2) {
        const bool in0 = 2 * t < OBS || 2 * t == ONE_COLUMN, in1 = 2 * t + 1 < OBS || 2 * t + 1 == ONE_COLUMN;
        net->w1[tile * 32 + lane] = pack2(in0 ? w0 : 0.0f, in1 ? w1 : 0.0f);
    }
    if (group >= KS * 2 * (1 - SHARED_COLUMNS)) {
        const int m = tile / 2, half = tile % 2;
        const bool out = column >= FIRST_OUTPUT && column - FIRST_OUTPUT < outputs;
        ((uint32_t *)net->w3)[(m / 2 * 32 + turned) * 4 + m % 2 * 2 + half] = out ? rows : 0u;
        net->w3_back[tile * 32 + lane] = pack2(out0 ? w0 : 0.0f, out1 ? w1 : 0.0f);
        if (t == B2_COLUMN / 2) {
            float *begin = (float *)&net->b2[tile * 4 + g / 2] + odd;
            begin[0] = begin[2] = B2_COLUMN % 2 ? w1 : w0;
        }
    }
}

struct PrepareArgs {
    const float *params;
    NetWords *image; /* [2] */
};

#if PART != LEARNING
/* The image of parameters that the host has set. */
extern "C" __global__ void __launch_bounds__(32) prepare(const PrepareArgs a) {
    const int critic = blockIdx.x / GROUPS, group = blockIdx.x % GROUPS, lane = threadIdx.x;
    const int p0 = place_of(critic, group, lane, 0), p1 = place_of(critic, group, lane, 1);
    store_words(a.image + critic, critic, group, lane, p0 < 0 ? 0.0f : a.params[p0], p1 < 0 ? 0.0f : a.params[p1], 1);
}
#endif

/* 16 bytes to shared memory, past the first cache, some time until the group that they are of is waited for. */
FN void copy16(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}

/* Threads that read of it what others fetched wait for those. */
FN void load_image(NetWords *to, const NetWords *from, int nets, int thread, int threads) {
    for (int i = thread; i < nets * (int)sizeof(NetWords) / 16; i += threads) copy16((uint4 *)to + i, (const uint4 *)from + i);
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
}

/* ---- A tile through a network ---- */

/* One tile of columns, activated, as half of a left operand. */
FN void keep(uint32_t *h, int tile, const float *c) {
    h[tile / 2 * 4 + tile % 2 * 2] = pack2(activate(c[0]), activate(c[1]));
    h[tile / 2 * 4 + tile % 2 * 2 + 1] = pack2(activate(c[2]), activate(c[3]));
}

FN void forward(const NetWords *net, int lane, uint32_t x0, uint32_t x1, uint32_t *h1, uint32_t *h2, float *y) {
    const int t = lane % 4;
#pragma unroll
    for (int n = 0; n < NT; n++) {
        float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        mma8(c, x0, x1, net->w1[n * 32 + lane]);
        keep(h1, n, c);
    }
    /* All columns side by side: a product waits for the one before it in its own sum alone. */
    float c[NT][4];
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const float4 b = net->b2[n * 4 + t];
        c[n][0] = b.x, c[n][1] = b.y, c[n][2] = b.z, c[n][3] = b.w;
    }
#pragma unroll
    for (int j = 0; j < KS / 2; j++) {
        uint4 w[NT];
#pragma unroll
        for (int n = 0; n < NT; n++) w[n] = net->w2[(n * (KS / 2) + j) * 32 + lane];
#pragma unroll
        for (int n = 0; n < NT; n++) mma16(c[n], h1 + 8 * j, w[n].x, w[n].y);
#pragma unroll
        for (int n = 0; n < NT; n++) mma16(c[n], h1 + 8 * j + 4, w[n].z, w[n].w);
    }
#pragma unroll
    for (int n = 0; n < NT; n++) keep(h2, n, c[n]);
    const float2 b = *(const float2 *)&net->b3[2 * t];
    float even[4] = {b.x, b.y, b.x, b.y}, odd[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < KS / 2; j++) {
        const uint4 w = net->w3[j * 32 + lane];
        mma16(even, h2 + 8 * j, w.x, w.y);
        mma16(odd, h2 + 8 * j + 4, w.z, w.w);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) y[i] = even[i] + odd[i];
}

/* ---- Random numbers of actions: stream (seed, env, episode 2^32 - 2, step) ---- */

FN float uniform(uint32_t word) { return ((float)(word >> 8) + 0.5f) * (1.0f / 16777216.0f); }

/* ---- Collecting ---- */

struct Rollout {
    float *obs;      /* [T + 1, N, OBS], normalised */
    void *action;    /* [T, N] of integers, or [T, N, OUT] of numbers */
    float *log_prob; /* [T, N] */
    float *value;    /* [T + 1, N] */
    float *reward;   /* [T, N], normalised, with the discounted value of the last observation where an episode was truncated */
    uint8_t *done;   /* [T, N] */
    float *advantage; /* [T, N], not normalised */
};
struct Finished {
    float *returned;   /* [N]: of the last episode that ended */
    int32_t *length;   /* [N] */
    uint32_t *episodes; /* [N]: that ended so far */
};
struct CollectArgs {
    Envs envs;
    Rollout rollout;
    Finished finished;
    Normaliser normaliser;
    const NetWords *image;
    const float *params;
    uint64_t seed;
    uint32_t steps, first_step, first_row;
    float gamma;
};

#if PART != LEARNING
struct Staged {
    uint32_t x[16 * TILES * 4]; /* observations, 8 bf16 a row */
    float y[16 * TILES * 9];    /* outputs of the policy, and the value */
};

extern "C" __global__ void __launch_bounds__(32 * WARPS) collect(const CollectArgs a) {
    extern __shared__ __align__(16) unsigned char memory[];
    NetWords *actor = (NetWords *)memory, *critic = actor + 1;
    Staged *staged = (Staged *)(critic + 1) + threadIdx.x / 32;
    load_image(actor, a.image, 2, threadIdx.x, 32 * WARPS);
    __syncthreads();
    const int lane = threadIdx.x % 32, g = lane / 4, t4 = lane % 4;
    const int mine = lane % (16 * TILES);
    const uint32_t first = (blockIdx.x * WARPS + threadIdx.x / 32) * 16 * TILES;
    if (first >= a.envs.count) return;
    const uint32_t i = first + mine;
    const int owner = lane < 16 * TILES && i < a.envs.count;
    const uint32_t from = i < a.envs.count ? i : a.envs.count - 1;
    const uint32_t env = a.envs.first_env + from, n = a.envs.count;
    int32_t s[STATE], action[ACTIONS];
    float obs[OBS];
#if CONTINUOUS
    float log_std[OUT];
#pragma unroll
    for (int k = 0; k < OUT; k++) log_std[k] = a.params[LOG_STD + k];
#endif
    Own own;
    load_state(a.envs, from, s);
    own.elapsed = load_own(a.envs, ELAPSED, from);
    own.returned = from_bits(load_own(a.envs, RETURNED, from));
    own.episode = load_own(a.envs, EPISODE, from);
    own.pending = 0;
    own.seed[0] = load_own(a.envs, SEED, from);
    own.seed[1] = load_own(a.envs, SEED + 1, from);
    Ended ended = {0, 0, 0};
    uint32_t words[4] = {0, 0, 0, 0};
#if NORMALISE_OBS || NORMALISE_REWARD
    const View view = *a.normaliser.view;
    Sums sums = {};
#endif
#if NORMALISE_REWARD
    float discounted = a.normaliser.discounted[from];
#endif

    /* One network's view of one observation per env: the policy's outputs, or the value in column 8. */
    auto look = [&](const float *x, bool policy) {
        uint32_t row[4];
        float padded[8];
#pragma unroll
        for (int k = 0; k < 8; k++) padded[k] = k < OBS ? x[k < OBS ? k : 0] : k == ONE_COLUMN ? 1.0f : 0.0f;
#pragma unroll
        for (int k = 0; k < 4; k++) row[k] = pack2(padded[2 * k], padded[2 * k + 1]);
        __syncwarp();
        if (lane < 16 * TILES) *(uint4 *)&staged->x[mine * 4] = make_uint4(row[0], row[1], row[2], row[3]);
        __syncwarp();
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            const uint32_t x0 = staged->x[(tile * 16 + g) * 4 + t4], x1 = staged->x[(tile * 16 + g + 8) * 4 + t4];
            uint32_t h1[KS * 4], h2[KS * 4];
            float y[4];
            float *upper = &staged->y[(tile * 16 + g) * 9], *lower = upper + 8 * 9;
            forward(policy ? actor : critic, lane, x0, x1, h1, h2, y);
            if (policy)
                upper[2 * t4] = y[0], upper[2 * t4 + 1] = y[1], lower[2 * t4] = y[2], lower[2 * t4 + 1] = y[3];
            else if (t4 == FIRST_OUTPUT / 2)
                upper[8] = y[FIRST_OUTPUT % 2], lower[8] = y[2 + FIRST_OUTPUT % 2];
        }
        __syncwarp();
    };
#pragma unroll 1
    for (uint32_t t = 0; t <= a.steps; t++) {
        const size_t at = (size_t)(a.first_row + t) * n + i;
        ENV_OBSERVE(s, obs);
#if NORMALISE_OBS
#pragma unroll
        for (int k = 0; k < OBS; k++) {
            /* The first row was the last of the launch before. */
            if (t > 0) see(sums, view, k, obs[k]);
            obs[k] = through(view, k, obs[k], OBS_LIMIT);
        }
#endif
        if (owner) {
#pragma unroll
            for (int k = 0; k < OBS; k++) a.rollout.obs[at * OBS + k] = obs[k];
        }
        if (t == a.steps) break;
        look(obs, true);
        const float *y = &staged->y[mine * 9 + FIRST_OUTPUT];
        float log_prob = 0.0f;
        const uint32_t step = a.first_step + t;
#if CONTINUOUS
#pragma unroll
        for (int k = 0; k < OUT; k++) {
            if (k % 2 == 0) philox(step, (uint32_t)(k / 2), 0xFFFFFFFEu, env, a.seed, words);
            const float radius = sqrtf(-2.0f * __logf(uniform(words[0]))), angle = 6.2831853f * uniform(words[1]);
            const float z = radius * (k % 2 == 0 ? __cosf(angle) : __sinf(angle));
            const float number = y[k] + __expf(log_std[k]) * z;
            log_prob -= 0.5f * z * z + log_std[k] + 0.91893853f;
            action[k] = bits(number);
            if (owner) ((float *)a.rollout.action)[at * OUT + k] = number;
        }
#else
        if (step % 4 == 0 || t == 0) philox(step / 4, 0, 0xFFFFFFFEu, env, a.seed, words);
        const uint32_t drawn = step % 4 == 0 ? words[0] : step % 4 == 1 ? words[1] : step % 4 == 2 ? words[2] : words[3];
        float most = y[0], total = 0.0f, chance[OUT];
#pragma unroll
        for (int k = 1; k < OUT; k++) most = fmaxf(most, y[k]);
#pragma unroll
        for (int k = 0; k < OUT; k++) chance[k] = __expf(y[k] - most), total += chance[k];
        const float point = uniform(drawn) * total;
        int choice = 0;
        float below = 0.0f;
#pragma unroll
        for (int k = 0; k < OUT - 1; k++) {
            below += chance[k];
            choice += point >= below;
        }
        float chosen = y[0];
#pragma unroll
        for (int k = 1; k < OUT; k++) chosen = choice == k ? y[k] : chosen;
        log_prob = chosen - most - __logf(total);
        action[0] = choice;
        if (owner) ((int32_t *)a.rollout.action)[at] = choice;
#endif
        int resets, done;
        const Step taken = take_step(a.envs, env, s, own, action, resets, done);
        float reward = taken.reward;
#if NORMALISE_REWARD
        discounted = discounted * a.gamma + reward;
        see(sums, view, OBS, discounted);
        if (done) discounted = 0.0f;
        reward = fminf(fmaxf(reward * view.factor[OBS], -REWARD_LIMIT), REWARD_LIMIT);
#endif
        const int cut = taken.truncated && !taken.terminated;
        if (__any_sync(0xFFFFFFFFu, cut)) {
            float last[OBS];
            ENV_OBSERVE(s, last);
#if NORMALISE_OBS
#pragma unroll
            for (int k = 0; k < OBS; k++) last[k] = through(view, k, last[k], OBS_LIMIT);
#endif
            look(last, false);
            if (cut) reward += a.gamma * staged->y[mine * 9 + 8];
        }
        if (owner) {
            a.rollout.log_prob[at] = log_prob;
            a.rollout.reward[at] = reward;
            a.rollout.done[at] = (uint8_t)done;
        }
        if (done) {
            ended.episodes += 1;
            ended.length += (uint32_t)own.elapsed;
            ended.returned += __float2ll_rn(own.returned * 1048576.0f);
            if (owner) {
                a.finished.returned[i] = own.returned;
                a.finished.length[i] = own.elapsed;
                a.finished.episodes[i] += 1;
            }
            own.episode += 1;
            own.elapsed = 0;
            own.returned = 0.0f;
            ENV_RESET(own.seed, env, own.episode, s);
        }
    }
    if (owner) {
        store_state(a.envs, i, s);
        store_own(a.envs, ELAPSED, i, own.elapsed);
        store_own(a.envs, RETURNED, i, bits(own.returned));
        store_own(a.envs, EPISODE, i, own.episode);
        if (ended.episodes != 0) add_totals(a.envs, ended);
#if NORMALISE_REWARD
        a.normaliser.discounted[i] = discounted;
#endif
    }
#if NORMALISE_OBS || NORMALISE_REWARD
    store_sums(a.normaliser, first / (16 * TILES), lane, owner, sums);
#endif
}
#endif

/* ---- Values of all observations, apart from the steps that wait for each other ---- */

struct EvaluateArgs {
    Rollout rollout;
    const NetWords *image;
    uint32_t rows, unused; /* (T + 1) * N */
};

/* The left operand of a tile of observations, with its column of 1. */
FN uint32_t observed(const float *row, int t) {
    const float low = 2 * t < OBS ? row[2 * t] : 2 * t == ONE_COLUMN ? 1.0f : 0.0f;
    return pack2(low, 2 * t + 1 < OBS ? row[2 * t + 1] : 2 * t + 1 == ONE_COLUMN ? 1.0f : 0.0f);
}

#if PART != LEARNING
extern "C" __global__ void __launch_bounds__(256) evaluate(const EvaluateArgs a) {
    extern __shared__ __align__(16) unsigned char memory[];
    NetWords *net = (NetWords *)memory;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint32_t first = blockIdx.x * 8 + threadIdx.x / 32, tiles = a.rows / 16, stride = gridDim.x * 8;
    /* A tile is read while the one before it is worked on. */
    auto read = [&](uint32_t tile, uint32_t *x) {
        const float *row = a.rollout.obs + ((size_t)min(tile, tiles - 1) * 16 + g) * OBS;
        x[0] = observed(row, t), x[1] = observed(row + 8 * OBS, t);
    };
    uint32_t x[2], next[2];
    read(first, next);
    load_image(net, a.image + 1, 1, threadIdx.x, 256);
    __syncthreads();
    for (uint32_t tile = first; tile < tiles; tile += stride) {
        x[0] = next[0], x[1] = next[1];
        read(tile + stride, next);
        uint32_t h1[KS * 4], h2[KS * 4];
        float y[4];
        forward(net, lane, x[0], x[1], h1, h2, y);
        if (t == FIRST_OUTPUT / 2) {
            float *value = a.rollout.value + (size_t)tile * 16 + g;
            value[0] = y[FIRST_OUTPUT % 2], value[8] = y[2 + FIRST_OUTPUT % 2];
        }
    }
}
#endif

/* ---- Order of samples: blocks of 16 envs of one step, by the steps of data/shuffle.rs ---- */

struct Order {
    uint32_t len, mask, shift, unused;
    uint32_t factors[4], offsets[4];
};
FN uint32_t index_at(const Order &o, uint32_t place) {
    uint32_t x = place;
    do {
#pragma unroll
        for (int r = 0; r < 4; r++) {
            x = (x * o.factors[r] + o.offsets[r]) & o.mask;
            x ^= x >> o.shift;
        }
    } while (x >= o.len);
    return x;
}

/* ---- Advantages ---- */

/* The last returns of all envs, added up by slots. */
struct Standing {
    int64_t returned; /* in units of 2^-20 */
    uint64_t envs;    /* that have ended an episode */
};
#define STANDING_SLOTS 64

struct EstimateArgs {
    Rollout rollout;
    Finished finished;
    Standing *standing; /* [STANDING_SLOTS] */
    uint32_t envs, steps;
    float gamma, lambda;
};

#if PART != LEARNING
/* Generalised advantage estimation, a thread per env, eight rows ahead of itself. */
extern "C" __global__ void __launch_bounds__(64) estimate(const EstimateArgs a) {
    const uint32_t i = blockIdx.x * 64 + threadIdx.x, n = a.envs;
    const bool ended = i < n && a.finished.episodes[i] > 0;
    const uint32_t envs = __popc(__ballot_sync(0xFFFFFFFFu, ended));
    int64_t returned = ended ? __float2ll_rn(a.finished.returned[i] * 1048576.0f) : 0;
#pragma unroll
    for (int other = 16; other > 0; other /= 2) returned += __shfl_xor_sync(0xFFFFFFFFu, returned, other);
    if (threadIdx.x % 32 == 0) {
        Standing *slot = a.standing + (blockIdx.x * 2 + threadIdx.x / 32) % STANDING_SLOTS;
        atomicAdd((uint64_t *)&slot->returned, (uint64_t)returned);
        atomicAdd(&slot->envs, (uint64_t)envs);
    }
    if (i >= n) return;
    float advantage = 0.0f, next = a.rollout.value[(size_t)a.steps * n + i];
#pragma unroll 1
    for (int first = (int)a.steps - 1; first >= 0; first -= 8) {
        float value[8], reward[8];
        uint8_t done[8];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const size_t at = (size_t)max(first - k, 0) * n + i;
            value[k] = a.rollout.value[at], reward[k] = a.rollout.reward[at], done[k] = a.rollout.done[at];
        }
#pragma unroll
        for (int k = 0; k < 8; k++) {
            if (first - k >= 0) {
                const float goes_on = done[k] ? 0.0f : a.gamma;
                const float delta = reward[k] + goes_on * next - value[k];
                advantage = delta + goes_on * a.lambda * advantage;
                a.rollout.advantage[(size_t)(first - k) * n + i] = advantage;
                next = value[k];
            }
        }
    }
}
#endif
