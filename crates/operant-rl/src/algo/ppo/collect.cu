/* Kernels of PPO before learning, after network.cu and sixteen.cu or tf32.cu: `prepare` packs weights, `collect` plays T steps of all
   envs, `evaluate` values what they saw; learn.cu goes on. */

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

/* Some networks, or what their way forward needs, to shared memory. Threads that read of it what others fetched wait for those. */
template <class Words> FN void load_image(Words *to, const NetWords *from, int nets, int thread, int threads) {
#pragma unroll 2
    for (int net = 0; net < nets; net++)
        for (int i = thread; i < (int)sizeof(Words) / 16; i += threads) copy16((uint4 *)(to + net) + i, (const uint4 *)(from + net) + i);
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
}

/* ---- Collecting ---- */

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
    ForwardWords *actor = (ForwardWords *)memory, *critic = actor + 1;
    Staged *staged = (Staged *)(critic + 1) + threadIdx.x / 32;
    take_turn();
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
    load_episode(a.envs, from, own);
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
            const float number = draw_number(y[k], log_std[k], k, step, env, a.seed, words, log_prob);
            action[k] = bits(number);
            if (owner) ((float *)a.rollout.action)[at * OUT + k] = number;
        }
#else
        if (step % 4 == 0 || t == 0) philox(step / 4, 0, 0xFFFFFFFEu, env, a.seed, words);
        action[0] = draw_choice(y, step, words, log_prob);
        if (owner) ((int32_t *)a.rollout.action)[at] = action[0];
#endif
        int resets, done;
        const Step taken = take_step(a.envs, env, s, own, action, resets, done);
        float reward = taken.reward;
#if NORMALISE_REWARD
        discounted = discounted * a.gamma + reward;
        see(sums, view, OBS, discounted);
        if (done) discounted = 0.0f;
        reward = within(reward * view.factor[OBS], REWARD_LIMIT);
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
        if (done) end_episode(a.finished, i, owner, env, s, own, ended);
    }
    if (owner) {
        store_state(a.envs, i, s);
        store_episode(a.envs, i, own);
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
    ForwardWords *net = (ForwardWords *)memory;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint32_t first = blockIdx.x * 8 + threadIdx.x / 32, tiles = a.rows / 16, stride = gridDim.x * 8;
    /* A tile is read while the one before it is worked on. */
    auto read = [&](uint32_t tile, uint32_t *x) {
        const float *row = a.rollout.obs + ((size_t)min(tile, tiles - 1) * 16 + g) * OBS;
        observed(row, row + 8 * OBS, t, x);
    };
    uint32_t x[X_WORDS], next[X_WORDS];
    take_turn();
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
