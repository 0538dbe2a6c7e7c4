/* N envs on a GPU around an env's printed functions: what env/lane_vec.rs does on the CPU. Defined before this text:
   STATE OBS ACTIONS CHOICES (0 unless masked), LIMIT (0 for none), AUTORESET (one of the three below), DRAWS (whether a
   step draws random numbers), REWARD (0, or what every step gives, a whole number), BLOCK (threads), LISTS (whether ended episodes
   are listed by block), SHOWN (whether an observation is the state, word by word), the sizes of the arguments, ENV_STEP ENV_RESET ENV_OBSERVE ENV_LEGAL, random_action(dim, word). With
   FUNCTIONS_ONLY there are no kernels: other text goes on from here.
   One thread per env. State lies in columns, [STATE + 6, pitch] words, so that a warp reads whole lines; four more words hold
   the seed of all envs, if they share one: reading it there spares most lines that only resets would read. Rows are stored
   past the cache, which the state then keeps. If SHOWN, the env's own columns lie elsewhere, as rows [N, STATE]: where a step's
   observations go to that place they are written once. */
#define SAME_STEP 0
#define NEXT_STEP 1
#define DISABLED 2

/* Where every step of an episode gives the same and episodes are short, a step reads and writes two bytes of progress for eight: elapsed
   steps are halves of words, and of returns only what they have beside is kept, which is 0 unless the host wrote a state or changed a
   parameter in the middle of an episode. */
#define NARROW (REWARD != 0 && AUTORESET == SAME_STEP && LIMIT > 0 && LIMIT < 65536)

/* The adapter's own columns, after the env's. */
#define ELAPSED (STATE + 0)
#define RETURNED (STATE + 1)
#define EPISODE (STATE + 2)
#define PENDING (STATE + 3)
#define SEED (STATE + 4)

/* Whether all envs share a seed, its two words, and, if NARROW, whether the return of any env has something beside. */
#define SHARED_SEED(envs) ((envs).words + (size_t)(STATE + 6) * (envs).pitch)

/* Episodes that ended: integers, so that the order of additions does not show. */
struct Totals {
    uint64_t episodes, length;
    int64_t returned; /* in units of 2^-20 */
    uint64_t unused;
};
#define TOTALS_SLOTS 1024

struct Envs {
    int32_t *words;
    int32_t *state; /* [STATE, pitch], the first of `words`, or, if SHOWN, [N, STATE] elsewhere */
    Totals *totals; /* [TOTALS_SLOTS] */
    uint32_t count, pitch, first_env, unused;
};

/* Where results go, by row numbers t * N + env. What only ended episodes write goes to three columns, to records, or, if both are
   null, nowhere. A record is whole sectors of memory: a step of very many envs writes half a sector here and there, which memory
   reads before it writes, in 25 to 31 us, and whole ones in 20. The records of 32 envs lie one after the other from the first's place
   on, so that there is less memory to keep in the cache. */
struct Row {
    float *obs, *reward;
    uint8_t *terminated, *truncated;
    float *final_obs, *episode_return;
    int32_t *episode_length;
    uint8_t *legal;
    float4 *ends; /* [N, END_WORDS / 4]: last observation, return, length, zeros */
};
#define END_WORDS ((OBS + 2 + 7) / 8 * 8)

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

static_assert(sizeof(ResetArgs) == RESET_BYTES && sizeof(StepArgs) == STEP_BYTES && sizeof(RolloutArgs) == ROLLOUT_BYTES,
              "env/cuda_vec.rs has the same structs");

/* What the adapter keeps of one env. */
struct Own {
    int32_t elapsed, episode, pending;
    float returned;
    int32_t seed[2];
};

/* Episodes of one env that ended in this launch. */
struct Ended {
    uint32_t episodes, length;
    int64_t returned;
};

struct Step {
    float reward;
    int terminated, truncated;
};

/* Past the first cache: nobody reads it twice. */
FN void load_state(const Envs &envs, uint32_t i, int32_t *s) {
#if SHOWN && STATE == 4
    const int4 row = __ldcg((const int4 *)envs.state + i);
    s[0] = row.x, s[1] = row.y, s[2] = row.z, s[3] = row.w;
#elif SHOWN && STATE == 2
    const int2 row = __ldcg((const int2 *)envs.state + i);
    s[0] = row.x, s[1] = row.y;
#else
#pragma unroll
    for (int c = 0; c < STATE; c++) s[c] = __ldcg(envs.state + (size_t)c * envs.pitch + i);
#endif
}

FN void store_state(const Envs &envs, uint32_t i, const int32_t *s) {
#if SHOWN && STATE == 4
    ((int4 *)envs.state)[i] = make_int4(s[0], s[1], s[2], s[3]);
#elif SHOWN && STATE == 2
    ((int2 *)envs.state)[i] = make_int2(s[0], s[1]);
#else
#pragma unroll
    for (int c = 0; c < STATE; c++) envs.state[(size_t)c * envs.pitch + i] = s[c];
#endif
}

FN int32_t load_own(const Envs &envs, int column, uint32_t i) { return envs.words[(size_t)column * envs.pitch + i]; }

FN void load_seed(const Envs &envs, uint32_t i, int32_t *seed) {
    const int32_t *shared = SHARED_SEED(envs);
    seed[0] = shared[1], seed[1] = shared[2];
    if (!shared[0]) seed[0] = load_own(envs, SEED, i), seed[1] = load_own(envs, SEED + 1, i);
}

FN void store_own(const Envs &envs, int column, uint32_t i, int32_t word) {
    envs.words[(size_t)column * envs.pitch + i] = word;
}

/* Steps and return of the episode so far; if NARROW, without what it has beside. */
FN void load_elapsed(const Envs &envs, uint32_t i, Own &own) {
#if NARROW
    own.elapsed = ((const uint16_t *)(envs.words + (size_t)ELAPSED * envs.pitch))[i];
    own.returned = (float)(own.elapsed * REWARD);
#else
    own.elapsed = load_own(envs, ELAPSED, i);
    own.returned = from_bits(load_own(envs, RETURNED, i));
#endif
}

FN void store_elapsed(const Envs &envs, uint32_t i, const Own &own) {
#if NARROW
    ((uint16_t *)(envs.words + (size_t)ELAPSED * envs.pitch))[i] = (uint16_t)own.elapsed;
#else
    store_own(envs, ELAPSED, i, own.elapsed);
    store_own(envs, RETURNED, i, bits(own.returned));
#endif
}

/* Adds what the return of an episode has beside, and the next one has not: for who reads it only when the episode ends. */
FN void complete_return(const Envs &envs, uint32_t i, Own &own) {
#if NARROW
    if (SHARED_SEED(envs)[3]) {
        own.returned += from_bits(load_own(envs, RETURNED, i));
        store_own(envs, RETURNED, i, 0);
    }
#endif
}

/* Steps and return of the episode so far. */
FN void load_progress(const Envs &envs, uint32_t i, Own &own) {
    load_elapsed(envs, i, own);
#if NARROW
    if (SHARED_SEED(envs)[3]) own.returned += from_bits(load_own(envs, RETURNED, i));
#endif
}

FN void store_progress(const Envs &envs, uint32_t i, const Own &own) {
    store_elapsed(envs, i, own);
#if NARROW
    if (SHARED_SEED(envs)[3]) store_own(envs, RETURNED, i, bits(own.returned - (float)(own.elapsed * REWARD)));
#endif
}

FN int32_t load_action(const StepArgs &a, size_t k) {
    switch (a.kind) {
        case 0: return ((const int32_t *)a.actions)[k];
        case 1: return ((const uint8_t *)a.actions)[k];
        case 2: return (int32_t)((const int64_t *)a.actions)[k];
        default: return bits((float)((const double *)a.actions)[k]);
    }
}

/* One observation of each thread as rows of memory, from row `at` on; `here` is 0 in threads beyond the last env. Rows of 1,
   2 and 4 numbers are one store; others go through shared memory, so that a warp writes whole lines. All threads of a
   warp come here. */
FN void store_obs(float *to, uint32_t at, int here, const float *obs) {
#if OBS == 1
    if (here) __stcs(to + at, obs[0]);
#elif OBS == 2
    if (here) __stcs((float2 *)to + at, make_float2(obs[0], obs[1]));
#elif OBS == 4
    if (here) __stcs((float4 *)to + at, make_float4(obs[0], obs[1], obs[2], obs[3]));
#elif BLOCK >= 32 && (OBS + (LISTS ? STATE + 4 : 0)) * BLOCK <= 12288
    __shared__ float staged[OBS * BLOCK];
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t numbers = OBS * __popc(__ballot_sync(0xFFFFFFFFu, here));
    float *mine = staged + (threadIdx.x - lane) * OBS;
    __syncwarp();
#pragma unroll
    for (int k = 0; k < OBS; k++) mine[lane * OBS + k] = obs[k];
    __syncwarp();
    float *first = to + (size_t)(at - lane) * OBS;
#pragma unroll
    for (int k = 0; k < OBS; k++)
        if (k * 32 + lane < numbers) __stcs(first + k * 32 + lane, mine[k * 32 + lane]);
#else
    if (here)
        for (int k = 0; k < OBS; k++) to[(size_t)at * OBS + k] = obs[k];
#endif
}

FN void store_legal(uint8_t *to, uint32_t at, const int32_t *s) {
#if CHOICES > 0
    uint8_t legal[CHOICES];
    ENV_LEGAL(s, legal);
#pragma unroll
    for (int k = 0; k < CHOICES; k++) to[(size_t)at * CHOICES + k] = legal[k];
#endif
}

FN void store_step(const Row &row, uint32_t at, const Step &step) {
    __stcs(row.reward + at, step.reward);
    __stcs(row.terminated + at, (uint8_t)step.terminated);
    __stcs(row.truncated + at, (uint8_t)step.truncated);
}

/* The step proper. Tells whether the env is to be reset, and whether its episode ended. */
FN Step take_step(const Envs &envs, uint32_t env, int32_t *s, Own &own, const int32_t *action, int &resets, int &done) {
    Step step;
    /* Saturates: a count that wrapped would never reach the limit. */
    own.elapsed = min(own.elapsed, 2147483646) + 1;
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
    done = step.terminated | step.truncated;
    own.returned += step.reward;
#if AUTORESET == SAME_STEP
    resets = done;
#elif AUTORESET == NEXT_STEP
    resets = restarts;
    own.pending = done;
#else
    resets = 0;
#endif
    return step;
}

/* The record of an env whose episode ended, by row number; all threads of a warp come here. */
FN uint32_t record_at(uint32_t at, int done) {
    const uint32_t which = __ballot_sync(0xFFFFFFFFu, done), lane = threadIdx.x % 32;
    return at - lane + __popc(which & ((1u << lane) - 1));
}

/* What only ended episodes write. */
FN void note_end(const Row &row, uint32_t at, uint32_t record, const int32_t *s, const Own &own) {
    if (row.final_obs != nullptr || row.ends != nullptr) {
        float last[END_WORDS] = {};
        ENV_OBSERVE(s, last);
        if (row.ends != nullptr) {
            last[OBS] = own.returned;
            last[OBS + 1] = from_bits(own.elapsed);
            float4 *to = row.ends + (size_t)record * (END_WORDS / 4);
#pragma unroll
            for (int k = 0; k < END_WORDS / 4; k++)
                __stcs(to + k, make_float4(last[4 * k], last[4 * k + 1], last[4 * k + 2], last[4 * k + 3]));
        } else {
#pragma unroll
            for (int k = 0; k < OBS; k++) row.final_obs[(size_t)at * OBS + k] = last[k];
            row.episode_return[at] = own.returned;
            row.episode_length[at] = own.elapsed;
        }
    }
}

FN void count_end(Ended &ended, int32_t length, float returned) {
    ended.episodes += 1;
    ended.length += (uint32_t)length;
    ended.returned += __float2ll_rn(returned * 1048576.0f);
}

FN void add_totals(const Envs &envs, const Ended &ended) {
    Totals *slot = envs.totals + (blockIdx.x * (BLOCK / 32) + threadIdx.x / 32) % TOTALS_SLOTS;
    atomicAdd(&slot->episodes, (uint64_t)ended.episodes);
    atomicAdd(&slot->length, (uint64_t)ended.length);
    atomicAdd((uint64_t *)&slot->returned, (uint64_t)ended.returned);
}

/* Of a warp, whose threads all come here, in one place: one env in twenty ends in a step of CartPole, and so do most warps' envs. */
FN void add_totals_of_warp(const Envs &envs, Ended ended) {
    const uint32_t which = __ballot_sync(0xFFFFFFFFu, ended.episodes != 0);
    if (which == 0) return;
    ended.episodes = __popc(which);
    ended.length = __reduce_add_sync(0xFFFFFFFFu, ended.length);
#pragma unroll
    for (int other = 16; other > 0; other /= 2) ended.returned += __shfl_xor_sync(0xFFFFFFFFu, ended.returned, other);
    if (threadIdx.x % 32 == __ffs(which) - 1) add_totals(envs, ended);
}

#ifndef FUNCTIONS_ONLY
extern "C" __global__ void __launch_bounds__(BLOCK) reset(const ResetArgs a) {
    const Envs &envs = a.envs;
    const uint32_t i = blockIdx.x * BLOCK + threadIdx.x;
    const int here = i < envs.count;
    int32_t s[STATE];
    float obs[OBS];
    if (i == 0 && a.seeded == 1) {
        int32_t *shared = SHARED_SEED(envs);
        shared[0] = a.which == nullptr && a.seeds == nullptr;
        shared[1] = (int32_t)a.seed, shared[2] = (int32_t)(a.seed >> 32);
    }
    if (here) {
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
            const Own own = {};
            store_progress(envs, i, own);
            store_own(envs, PENDING, i, 0);
        } else {
            load_state(envs, i, s);
        }
        ENV_OBSERVE(s, obs);
        store_legal(a.row.legal, i, s);
    }
    store_obs(a.row.obs, i, here, obs);
}

#if LISTS && AUTORESET == SAME_STEP
/* What ended in a block of `step`, so that few of its threads draw first states and add up for all: one env of CartPole in sixteen ends
   in a step, and nearly every warp would do both for two of its envs. */
struct List {
    uint32_t count;
    uint32_t env[BLOCK];
    int32_t length[BLOCK];
    float returned[BLOCK];
    int32_t first[STATE][BLOCK]; /* of the next episodes */
};

/* All threads of a block come here, after they saw the list's count at 0. */
FN void begin_episodes(const Envs &envs, List &list, uint32_t i, int resets, int32_t *s, Own &own) {
    const uint32_t which = __ballot_sync(0xFFFFFFFFu, resets), lane = threadIdx.x % 32;
    uint32_t place = 0;
    if (which != 0) {
        const uint32_t first = __ffs(which) - 1;
        if (lane == first) place = atomicAdd(&list.count, __popc(which));
        place = __shfl_sync(0xFFFFFFFFu, place, first) + __popc(which & ((1u << lane) - 1));
    }
    if (resets) list.env[place] = i, list.length[place] = own.elapsed, list.returned[place] = own.returned;
    __syncthreads();
    const uint32_t count = list.count;
    if (count == 0) return;
    if (threadIdx.x - lane < count) {
        Ended ended = {0, 0, 0};
        if (threadIdx.x < count) {
            const uint32_t other = list.env[threadIdx.x];
            const int32_t episode = load_own(envs, EPISODE, other) + 1;
            int32_t seed[2], first[STATE];
            load_seed(envs, other, seed);
            ENV_RESET(seed, envs.first_env + other, episode, first);
            store_own(envs, EPISODE, other, episode);
#pragma unroll
            for (int c = 0; c < STATE; c++) list.first[c][threadIdx.x] = first[c];
            count_end(ended, list.length[threadIdx.x], list.returned[threadIdx.x]);
        }
        add_totals_of_warp(envs, ended);
    }
    __syncthreads();
    if (resets) {
#pragma unroll
        for (int c = 0; c < STATE; c++) s[c] = list.first[c][place];
        own.elapsed = 0;
        own.returned = 0.0f;
    }
}
#endif

/* One step. Bytes per env beside the row's: the state read and written, progress likewise, the action; the rest only where an
   episode ended. */
extern "C" __global__ void __launch_bounds__(BLOCK) step(const StepArgs a) {
    const Envs &envs = a.envs;
    const uint32_t i = blockIdx.x * BLOCK + threadIdx.x;
    const int here = i < envs.count;
    int32_t s[STATE], action[ACTIONS];
    float obs[OBS];
    Own own;
    Step step;
    int resets = 0, done = 0;
#if LISTS && AUTORESET == SAME_STEP
    __shared__ List list;
    if (threadIdx.x == 0) list.count = 0;
#endif
#if __CUDA_ARCH__ >= 900
    /* The next step's blocks may take their places while this one ends; they wait here before they read. */
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    if (here) {
        load_state(envs, i, s);
        load_elapsed(envs, i, own);
#pragma unroll
        for (int k = 0; k < ACTIONS; k++) action[k] = load_action(a, (size_t)i * ACTIONS + k);
#if DRAWS
        load_seed(envs, i, own.seed);
        own.episode = load_own(envs, EPISODE, i);
#endif
#if AUTORESET == NEXT_STEP
        own.pending = load_own(envs, PENDING, i);
#endif
        step = take_step(envs, envs.first_env + i, s, own, action, resets, done);
    }
    const uint32_t record = record_at(i, done);
    if (done) {
        complete_return(envs, i, own);
        note_end(a.row, i, record, s, own);
    }
#if LISTS && AUTORESET == SAME_STEP
    __syncthreads();
    begin_episodes(envs, list, i, resets, s, own);
#else
    Ended ended = {0, 0, 0};
    if (done) count_end(ended, own.elapsed, own.returned);
    add_totals_of_warp(envs, ended);
    if (resets) {
        load_seed(envs, i, own.seed);
        const int32_t episode = load_own(envs, EPISODE, i) + 1;
        ENV_RESET(own.seed, envs.first_env + i, episode, s);
        own.elapsed = 0;
        own.returned = 0.0f;
        store_own(envs, EPISODE, i, episode);
    }
#endif
    if (here) {
        store_state(envs, i, s);
        store_elapsed(envs, i, own);
#if AUTORESET == NEXT_STEP
        store_own(envs, PENDING, i, own.pending);
#endif
        store_step(a.row, i, step);
        store_legal(a.row.legal, i, s);
        ENV_OBSERVE(s, obs);
    }
    if (!SHOWN || a.row.obs != (float *)envs.state) store_obs(a.row.obs, i, here, obs);
}

#endif

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

#ifndef FUNCTIONS_ONLY
/* Many steps with random actions, the state in registers all along. The actions of an env are the words, in order, of
   the stream (seed, env, episode 2^32 - 1, step 0). A warp draws first states for all its envs that have none in store
   as soon as one needs it: most episodes then begin without a draw. */
extern "C" __global__ void __launch_bounds__(BLOCK) rollout(const RolloutArgs a) {
    const Envs &envs = a.envs;
    const uint32_t i = blockIdx.x * BLOCK + threadIdx.x;
    const int here = i < envs.count;
    /* Threads beyond the last env step along with it and write nothing. */
    const uint32_t from = here ? i : envs.count - 1;
    const uint32_t env = envs.first_env + from;
    int32_t s[STATE], first[STATE], action[ACTIONS];
    float obs[OBS];
    Own own;
    Ended ended = {0, 0, 0};
    load_state(envs, from, s);
    load_progress(envs, from, own);
    own.episode = load_own(envs, EPISODE, from);
    own.pending = load_own(envs, PENDING, from);
    own.seed[0] = load_own(envs, SEED, from);
    own.seed[1] = load_own(envs, SEED + 1, from);
    int stored = 0;
    uint32_t words[4] = {0, 0, 0, 0};
    uint32_t drawn = a.first_step * ACTIONS;
    if (drawn % 4 != 0) {
        philox(drawn / 4, 0, 0xFFFFFFFFu, env, a.seed, words);
        for (uint32_t k = 0; k < drawn % 4; k++) words[0] = words[1], words[1] = words[2], words[2] = words[3];
    }
    uint32_t at = i;
#pragma unroll 1
    for (uint32_t t = 0; t < a.steps; t++) {
#pragma unroll
        for (int k = 0; k < ACTIONS; k++) {
            if (drawn % 4 == 0) philox(drawn / 4, 0, 0xFFFFFFFFu, env, a.seed, words);
            action[k] = random_action(k, words[0]);
            words[0] = words[1], words[1] = words[2], words[2] = words[3];
            drawn++;
        }
        int resets, done;
        const Step step = take_step(envs, env, s, own, action, resets, done);
        const uint32_t record = record_at(at, done && here);
        if (done && here) {
            note_end(a.row, at, record, s, own);
            count_end(ended, own.elapsed, own.returned);
        }
#if AUTORESET != DISABLED
        if (__any_sync(0xFFFFFFFFu, resets && !stored)) {
            if (!stored) ENV_RESET(own.seed, env, own.episode + 1, first);
            stored = 1;
        }
        if (resets) {
#pragma unroll
            for (int c = 0; c < STATE; c++) s[c] = first[c];
            own.episode += 1;
            own.elapsed = 0;
            own.returned = 0.0f;
            stored = 0;
        }
#endif
        ENV_OBSERVE(s, obs);
        if (here) {
            store_step(a.row, at, step);
            store_legal(a.row.legal, at, s);
        }
        store_obs(a.row.obs, at, here, obs);
        at += envs.count;
    }
    if (here) {
        store_state(envs, i, s);
        store_progress(envs, i, own);
        store_own(envs, EPISODE, i, own.episode);
        store_own(envs, PENDING, i, own.pending);
        if (ended.episodes != 0) add_totals(envs, ended);
    }
}
#endif
