/* N envs on a GPU around an env's printed functions: what env/lane_vec.rs does on the CPU. Defined before this text:
   STATE OBS ACTIONS CHOICES (0 unless masked), LIMIT (0 for none), AUTORESET (one of the three below), DRAWS (whether a
   step draws random numbers), BLOCK (threads), ENV_STEP ENV_RESET ENV_OBSERVE ENV_LEGAL, random_action(dim, word).
   One thread per env. State lies in columns, [STATE + 6, pitch] words, so that a warp reads whole lines. */
#define SAME_STEP 0
#define NEXT_STEP 1
#define DISABLED 2

/* The adapter's own columns, after the env's. */
#define ELAPSED (STATE + 0)
#define RETURNED (STATE + 1)
#define EPISODE (STATE + 2)
#define PENDING (STATE + 3)
#define SEED (STATE + 4)

/* Episodes that ended: integers, so that the order of additions does not show. */
struct Totals {
    uint64_t episodes, length;
    int64_t returned; /* in units of 2^-20 */
    uint64_t unused;
};
#define TOTALS_SLOTS 1024

struct Envs {
    int32_t *words;
    Totals *totals; /* [TOTALS_SLOTS] */
    uint32_t count, pitch, first_env, unused;
};

/* Where results go; a null pointer is not written. Episodes that end write the last four but legal. */
struct Row {
    float *obs, *reward;
    uint8_t *terminated, *truncated;
    float *final_obs, *episode_return;
    int32_t *episode_length;
    uint8_t *legal;
};

struct ResetArgs {
    Envs envs;
    Row row;
    const uint8_t *which;  /* [N] or null for all */
    const uint64_t *seeds; /* [N] or null */
    uint64_t seed;
    uint32_t seeded, unused; /* 0: the next episode; 1: episode 0 of seed or seeds; 2: only show the states */
};

struct StepArgs {
    Envs envs;
    Row row;
    const void *actions; /* [N, ACTIONS] */
    uint32_t kind;       /* 0: 32-bit words, 1: u8, 2: i64, 3: f64 */
    uint32_t unused;
};

struct RolloutArgs {
    Envs envs;
    Row row; /* the first of `steps` rows, each after the other */
    uint64_t seed; /* of the actions */
    uint32_t steps, first_step; /* first_step: how many actions each env's stream has given */
};

/* What the adapter keeps of one env. */
struct Own {
    int32_t elapsed, episode, pending;
    float returned;
    int32_t seed[2];
};

struct Step {
    float reward;
    int terminated, truncated;
};

FN void load_state(const Envs &envs, uint32_t i, int32_t *s) {
#pragma unroll
    for (int c = 0; c < STATE; c++) s[c] = envs.words[(size_t)c * envs.pitch + i];
}

FN void store_state(const Envs &envs, uint32_t i, const int32_t *s) {
#pragma unroll
    for (int c = 0; c < STATE; c++) envs.words[(size_t)c * envs.pitch + i] = s[c];
}

FN int32_t load_own(const Envs &envs, int column, uint32_t i) { return envs.words[(size_t)column * envs.pitch + i]; }

FN void store_own(const Envs &envs, int column, uint32_t i, int32_t word) {
    envs.words[(size_t)column * envs.pitch + i] = word;
}

FN int32_t load_action(const StepArgs &a, size_t k) {
    switch (a.kind) {
        case 0: return ((const int32_t *)a.actions)[k];
        case 1: return ((const uint8_t *)a.actions)[k];
        case 2: return (int32_t)((const int64_t *)a.actions)[k];
        default: return bits((float)((const double *)a.actions)[k]);
    }
}

/* One observation of each thread as rows of memory. Rows of 1, 2 and 4 numbers are one store; others go through shared
   memory, so that a warp writes whole lines. All threads of a warp come here. */
FN void store_obs(float *to, uint32_t i, uint32_t count, const float *obs) {
    if (to == nullptr) return;
#if OBS == 1
    if (i < count) to[i] = obs[0];
#elif OBS == 2
    if (i < count) ((float2 *)to)[i] = make_float2(obs[0], obs[1]);
#elif OBS == 4
    if (i < count) ((float4 *)to)[i] = make_float4(obs[0], obs[1], obs[2], obs[3]);
#elif OBS * BLOCK <= 12288
    __shared__ float staged[OBS * BLOCK];
    const uint32_t lane = threadIdx.x % 32;
    float *mine = staged + (threadIdx.x - lane) * OBS;
    __syncwarp();
#pragma unroll
    for (int k = 0; k < OBS; k++) mine[lane * OBS + k] = obs[k];
    __syncwarp();
    const size_t first = (size_t)(i - lane) * OBS, end = (size_t)count * OBS;
#pragma unroll
    for (int k = 0; k < OBS; k++)
        if (first + k * 32 + lane < end) to[first + k * 32 + lane] = mine[k * 32 + lane];
#else
    if (i < count)
        for (int k = 0; k < OBS; k++) to[(size_t)i * OBS + k] = obs[k];
#endif
}

FN void store_obs_alone(float *to, uint32_t i, const float *obs) {
#pragma unroll
    for (int k = 0; k < OBS; k++) to[(size_t)i * OBS + k] = obs[k];
}

FN void store_legal(uint8_t *to, uint32_t i, const int32_t *s) {
#if CHOICES > 0
    uint8_t legal[CHOICES];
    ENV_LEGAL(s, legal);
#pragma unroll
    for (int k = 0; k < CHOICES; k++) to[(size_t)i * CHOICES + k] = legal[k];
#endif
}

/* One step of one env with auto-reset. Writes what only ended episodes write; leaves the observation in obs. */
FN Step advance(const Envs &envs, const Row &row, uint32_t i, int32_t *s, Own &own, const int32_t *action, float *obs,
                Totals &ended, const int seeds_loaded) {
    const uint32_t env = envs.first_env + i;
    Step step;
    /* Saturates: a count that wrapped would never reach the limit. */
    own.elapsed = own.elapsed == 2147483647 ? own.elapsed : own.elapsed + 1;
#if AUTORESET == NEXT_STEP
    const int restarts = own.pending == 1;
    int32_t before[STATE];
#pragma unroll
    for (int c = 0; c < STATE; c++) before[c] = s[c];
#endif
    step.terminated = ENV_STEP(own.seed, env, own.episode, own.elapsed, s, action, &step.reward);
    step.truncated = LIMIT > 0 && own.elapsed >= LIMIT;
#if AUTORESET == NEXT_STEP
    if (restarts) {
#pragma unroll
        for (int c = 0; c < STATE; c++) s[c] = before[c];
        step.reward = 0.0f;
        step.terminated = step.truncated = 0;
    }
#endif
    const int done = step.terminated | step.truncated;
    own.returned += step.reward;
    ENV_OBSERVE(s, obs);
    if (done) {
        if (row.final_obs != nullptr) store_obs_alone(row.final_obs, i, obs);
        if (row.episode_return != nullptr) row.episode_return[i] = own.returned;
        if (row.episode_length != nullptr) row.episode_length[i] = own.elapsed;
        ended.episodes += 1;
        ended.length += (uint32_t)own.elapsed;
        ended.returned += __float2ll_rn(own.returned * 1048576.0f);
    }
#if AUTORESET == SAME_STEP
    const int resets = done;
#elif AUTORESET == NEXT_STEP
    const int resets = restarts;
    own.pending = done;
#else
    const int resets = 0;
#endif
    if (resets) {
        if (!seeds_loaded) {
            own.seed[0] = load_own(envs, SEED, i);
            own.seed[1] = load_own(envs, SEED + 1, i);
        }
        own.episode += 1;
        ENV_RESET(own.seed, env, own.episode, s);
        ENV_OBSERVE(s, obs);
        own.elapsed = 0;
        own.returned = 0.0f;
    }
    return step;
}

FN void store_step(const Row &row, uint32_t i, const Step &step) {
    row.reward[i] = step.reward;
    row.terminated[i] = (uint8_t)step.terminated;
    row.truncated[i] = (uint8_t)step.truncated;
}

FN void add_totals(const Envs &envs, const Totals &ended) {
    Totals *slot = envs.totals + (blockIdx.x * (BLOCK / 32) + threadIdx.x / 32) % TOTALS_SLOTS;
    atomicAdd(&slot->episodes, ended.episodes);
    atomicAdd(&slot->length, ended.length);
    atomicAdd((uint64_t *)&slot->returned, (uint64_t)ended.returned);
}

extern "C" __global__ void __launch_bounds__(BLOCK) reset(const ResetArgs a) {
    const Envs &envs = a.envs;
    const uint32_t i = blockIdx.x * BLOCK + threadIdx.x;
    int32_t s[STATE];
    float obs[OBS];
    if (i < envs.count) {
        if (a.seeded != 2 && (a.which == nullptr || a.which[i] != 0)) {
            int32_t seed[2] = {load_own(envs, SEED, i), load_own(envs, SEED + 1, i)};
            int32_t episode = load_own(envs, EPISODE, i) + 1;
            if (a.seeded == 1) {
                const uint64_t word = a.seeds == nullptr ? a.seed : a.seeds[i];
                seed[0] = (int32_t)word;
                seed[1] = (int32_t)(word >> 32);
                episode = 0;
            }
            ENV_RESET(seed, envs.first_env + i, episode, s);
            store_state(envs, i, s);
            store_own(envs, SEED, i, seed[0]);
            store_own(envs, SEED + 1, i, seed[1]);
            store_own(envs, EPISODE, i, episode);
            store_own(envs, ELAPSED, i, 0);
            store_own(envs, RETURNED, i, 0);
            store_own(envs, PENDING, i, 0);
        } else {
            load_state(envs, i, s);
        }
        ENV_OBSERVE(s, obs);
        store_legal(a.row.legal, i, s);
    }
    store_obs(a.row.obs, i, envs.count, obs);
}

extern "C" __global__ void __launch_bounds__(BLOCK) step(const StepArgs a) {
    const Envs &envs = a.envs;
    const uint32_t i = blockIdx.x * BLOCK + threadIdx.x;
    int32_t s[STATE], action[ACTIONS];
    float obs[OBS];
#if __CUDA_ARCH__ >= 900
    /* The next step's blocks may take their places while this one ends; they wait here before they read. */
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    if (i < envs.count) {
        Own own;
        load_state(envs, i, s);
        own.elapsed = load_own(envs, ELAPSED, i);
        own.returned = from_bits(load_own(envs, RETURNED, i));
#pragma unroll
        for (int k = 0; k < ACTIONS; k++) action[k] = load_action(a, (size_t)i * ACTIONS + k);
#if DRAWS
        own.seed[0] = load_own(envs, SEED, i);
        own.seed[1] = load_own(envs, SEED + 1, i);
#endif
#if DRAWS || AUTORESET != DISABLED
        own.episode = load_own(envs, EPISODE, i);
#endif
#if AUTORESET == NEXT_STEP
        own.pending = load_own(envs, PENDING, i);
#endif
#if AUTORESET != DISABLED
        const int32_t episode = own.episode;
#endif
        Totals ended = {0, 0, 0, 0};
        const Step step = advance(envs, a.row, i, s, own, action, obs, ended, DRAWS);
        store_state(envs, i, s);
        store_own(envs, ELAPSED, i, own.elapsed);
        store_own(envs, RETURNED, i, bits(own.returned));
#if AUTORESET == NEXT_STEP
        store_own(envs, PENDING, i, own.pending);
#endif
#if AUTORESET != DISABLED
        if (own.episode != episode) store_own(envs, EPISODE, i, own.episode);
#endif
        store_step(a.row, i, step);
        store_legal(a.row.legal, i, s);
        if (ended.episodes != 0) add_totals(envs, ended);
    }
    store_obs(a.row.obs, i, envs.count, obs);
}

/* Philox4x32-10, as lanes/rng.rs has it. */
FN void philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t seed, uint32_t *words) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint32_t high0 = __umulhi(c0, 0xD2511F53u), low0 = c0 * 0xD2511F53u;
        const uint32_t high1 = __umulhi(c2, 0xCD9E8D57u), low1 = c2 * 0xCD9E8D57u;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}

/* Many steps with random actions, the state in registers all along. The actions of an env are the words, in order, of
   the stream (seed, env, episode 2^32 - 1, step 0). */
extern "C" __global__ void __launch_bounds__(BLOCK) rollout(const RolloutArgs a) {
    const Envs &envs = a.envs;
    const uint32_t i = blockIdx.x * BLOCK + threadIdx.x;
    const int here = i < envs.count;
    /* Threads beyond the last env step along with it and write nothing of their own. */
    const uint32_t from = here ? i : envs.count - 1;
    int32_t s[STATE], action[ACTIONS];
    float obs[OBS];
    Own own;
    Row row = a.row;
    Totals ended = {0, 0, 0, 0};
    load_state(envs, from, s);
    own.elapsed = load_own(envs, ELAPSED, from);
    own.returned = from_bits(load_own(envs, RETURNED, from));
    own.episode = load_own(envs, EPISODE, from);
    own.pending = load_own(envs, PENDING, from);
    own.seed[0] = load_own(envs, SEED, from);
    own.seed[1] = load_own(envs, SEED + 1, from);
    uint32_t words[4];
    uint32_t drawn = a.first_step * ACTIONS;
    if (drawn % 4 != 0) {
        philox(drawn / 4, 0, 0xFFFFFFFFu, envs.first_env + from, a.seed, words);
        for (uint32_t k = 0; k < drawn % 4; k++) words[0] = words[1], words[1] = words[2], words[2] = words[3];
    }
    if (!here) row.final_obs = nullptr, row.episode_return = nullptr, row.episode_length = nullptr;
#pragma unroll 1
    for (uint32_t t = 0; t < a.steps; t++) {
#pragma unroll
        for (int k = 0; k < ACTIONS; k++) {
            if (drawn % 4 == 0) philox(drawn / 4, 0, 0xFFFFFFFFu, envs.first_env + from, a.seed, words);
            action[k] = random_action(k, words[0]);
            words[0] = words[1], words[1] = words[2], words[2] = words[3];
            drawn++;
        }
        const Step step = advance(envs, row, from, s, own, action, obs, ended, 1);
        if (here) {
            store_step(row, i, step);
            store_legal(row.legal, i, s);
        }
        store_obs(row.obs, i, envs.count, obs);
        row.obs += (size_t)envs.count * OBS;
        row.reward += envs.count;
        row.terminated += envs.count;
        row.truncated += envs.count;
        row.legal += (size_t)envs.count * CHOICES;
        if (row.final_obs != nullptr) row.final_obs += (size_t)envs.count * OBS;
        if (row.episode_return != nullptr) row.episode_return += envs.count;
        if (row.episode_length != nullptr) row.episode_length += envs.count;
    }
    if (here) {
        store_state(envs, i, s);
        store_own(envs, ELAPSED, i, own.elapsed);
        store_own(envs, RETURNED, i, bits(own.returned));
        store_own(envs, EPISODE, i, own.episode);
        store_own(envs, PENDING, i, own.pending);
        if (ended.episodes != 0) add_totals(envs, ended);
    }
}
