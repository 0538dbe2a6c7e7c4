/* Kernels of PPO before learning, after network.cu and bf16.cu or tf32.cu: `prepare` packs weights, `collect` plays T steps of all
   envs, `evaluate` values what they saw, `estimate` makes advantages; learn.cu goes on. */

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
    uint32_t x[16 * TILES * ROW_WORDS]; /* observations, 8 numbers a row */
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
        uint32_t row[ROW_WORDS];
        float padded[8];
#pragma unroll
        for (int k = 0; k < 8; k++) padded[k] = k < OBS ? x[k < OBS ? k : 0] : k == ONE_COLUMN ? 1.0f : 0.0f;
        pack_row(padded, row);
        __syncwarp();
        if (lane < 16 * TILES) {
#pragma unroll
            for (int k = 0; k < ROW_WORDS; k += 4)
                *(uint4 *)&staged->x[mine * ROW_WORDS + k] = make_uint4(row[k], row[k + 1], row[k + 2], row[k + 3]);
        }
        __syncwarp();
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            const uint32_t *rows = &staged->x[(tile * 16 + g) * ROW_WORDS];
            uint32_t x[X_WORDS];
            Kept kept;
            float y[4];
            staged_operand(rows, rows + 8 * ROW_WORDS, t4, x);
            float *upper = &staged->y[(tile * 16 + g) * 9], *lower = upper + 8 * 9;
            forward<false>(policy ? actor : critic, lane, x, kept, y);
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

#if PART != LEARNING
extern "C" __global__ void __launch_bounds__(256) evaluate(const EvaluateArgs a) {
    extern __shared__ __align__(16) unsigned char memory[];
    NetWords *net = (NetWords *)memory;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint32_t first = blockIdx.x * 8 + threadIdx.x / 32, tiles = a.rows / 16, stride = gridDim.x * 8;
    /* A tile is read while the one before it is worked on. */
    auto read = [&](uint32_t tile, uint32_t *x) {
        const float *row = a.rollout.obs + ((size_t)min(tile, tiles - 1) * 16 + g) * OBS;
        observed(row, row + 8 * OBS, t, x);
    };
    uint32_t x[X_WORDS], next[X_WORDS];
    read(first, next);
    load_image(net, a.image + 1, 1, threadIdx.x, 256);
    __syncthreads();
    for (uint32_t tile = first; tile < tiles; tile += stride) {
#pragma unroll
        for (int k = 0; k < X_WORDS; k++) x[k] = next[k];
        read(tile + stride, next);
        Kept kept;
        float y[4];
        forward<false>(net, lane, x, kept, y);
        if (t == FIRST_OUTPUT / 2) {
            float *value = a.rollout.value + (size_t)tile * 16 + g;
            value[0] = y[FIRST_OUTPUT % 2], value[8] = y[2 + FIRST_OUTPUT % 2];
        }
    }
}
#endif

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
