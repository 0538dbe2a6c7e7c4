/* What PPO's kernels share, whatever the network: the rollout, actions by chance, ends of episodes, advantages, the order of samples,
   what the host hears. After normalise.cu. Defined before this text, beside what adapter.cu asks for: PART (COLLECTING or LEARNING),
   OUT (logits, or numbers of an action), TOLD (envs whose episodes are told), STATISTICS, and the sizes that the last lines hold to
   those of algo/ppo/cuda.rs. */

struct Rollout {
    float *obs;      /* [T + 1, N, OBS], normalised */
    void *action;    /* [T, N] of integers, or [T, N, OUT] of numbers */
    float *log_prob; /* [T, N] */
    float *value;    /* [T + 1, N] */
    float *reward;   /* [T, N], normalised, with the discounted value of the last observation where an episode was truncated */
    uint8_t *done;   /* [T, N] */
    float *advantage; /* [T, N], not normalised */
    uint8_t *legal;   /* [T, N, CHOICES] */
};
/* What comes next may take its places from here on, and waits here itself for all that came before. */
FN void take_turn() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

struct Finished {
    float *returned;   /* [N]: of the last episode that ended */
    int32_t *length;   /* [N] */
    uint32_t *episodes; /* [N]: that ended so far */
};
/* ---- Random numbers of actions: stream (seed, env, episode 2^32 - 2, step) ---- */

FN float uniform(uint32_t word) { return ((float)(word >> 8) + 0.5f) * (1.0f / 16777216.0f); }

/* A choice by logits, with its log-probability; the words are of steps step / 4 * 4 and the three after it. */
FN int draw_choice(const float *y, uint32_t step, const uint32_t *words, float &log_prob) {
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
#if CHOICES > 0
    /* The largest number that is drawn rounds to 1, which is beyond the last choice that has a chance. */
#pragma unroll
    for (int k = OUT - 1; k > 0; k--) choice -= choice == k && chance[k] == 0.0f;
#endif
    float chosen = y[0];
#pragma unroll
    for (int k = 1; k < OUT; k++) chosen = choice == k ? y[k] : chosen;
    log_prob = chosen - most - __logf(total);
    return choice;
}
/* Number k of an action, whose logarithm of probability is added; numbers 2k and 2k + 1 are of the same words. */
FN float draw_number(float mean, float log_std, int k, uint32_t step, uint32_t env, uint64_t seed, uint32_t *words, float &log_prob) {
    if (k % 2 == 0) philox(step, (uint32_t)(k / 2), 0xFFFFFFFEu, env, seed, words);
    const float radius = sqrtf(-2.0f * __logf(uniform(words[0]))), angle = 6.2831853f * uniform(words[1]);
    const float z = radius * (k % 2 == 0 ? __cosf(angle) : __sinf(angle));
    log_prob -= 0.5f * z * z + log_std + 0.91893853f;
    return mean + __expf(log_std) * z;
}

#if CHOICES > 0
/* Logits of what is not legal, so low that they have no chance and no slope. */
FN void mask(float *logits, const uint8_t *legal) {
#pragma unroll
    for (int k = 0; k < CHOICES; k++) logits[k] = legal[k] ? logits[k] : -1e30f;
}
#endif

FN void load_episode(const Envs &envs, uint32_t i, Own &own) {
    load_progress(envs, i, own);
    own.episode = load_own(envs, EPISODE, i);
    own.pending = 0;
    own.seed[0] = load_own(envs, SEED, i);
    own.seed[1] = load_own(envs, SEED + 1, i);
}
FN void store_episode(const Envs &envs, uint32_t i, const Own &own) {
    store_progress(envs, i, own);
    store_own(envs, EPISODE, i, own.episode);
}
/* Notes an episode that ended, and begins the next. */
FN void end_episode(const Finished &finished, uint32_t i, int owner, uint32_t env, int32_t *s, Own &own, Ended &ended) {
    count_end(ended, own.elapsed, own.returned);
    if (owner) {
        finished.returned[i] = own.returned;
        finished.length[i] = own.elapsed;
        finished.episodes[i] += 1;
    }
    own.episode += 1;
    own.elapsed = 0;
    own.returned = 0.0f;
    ENV_RESET(own.seed, env, own.episode, s);
}

/* The squared error that counts, and half its slope by the value. */
FN float value_error(float value, float old, float returns, float clip, uint32_t clip_value, float &slope) {
    const float moved = value - old, error = value - returns;
    const float near = old + fminf(fmaxf(moved, -clip), clip) - returns;
    slope = error;
    if (!clip_value || near * near <= error * error) return error * error;
    slope = fabsf(moved) <= clip ? near : 0.0f;
    return near * near;
}

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
    take_turn();
    const bool ended = i < n && a.finished.episodes[i] > 0;
    const uint32_t envs = __popc(__ballot_sync(0xFFFFFFFFu, ended));
    const int64_t returned = warp_sum(ended ? (int64_t)__float2ll_rn(a.finished.returned[i] * 1048576.0f) : 0);
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

/* ---- What the host wants to know, in one place ---- */

struct TellArgs {
    Envs envs;
    Finished finished;
    const float *report; /* [STATISTICS] */
    Standing *standing;  /* [STANDING_SLOTS], which become 0 */
    /* [STATISTICS + 3 * TOLD + 4]: the report, then returns, lengths and counts of the first envs, then how many episodes
       ended in all envs, modulo 2^32, how many envs have ended one, the mean of their last returns, and at last `turn` */
    float *told;
    uint32_t turn, unused;
};

#if PART != LEARNING
extern "C" __global__ void __launch_bounds__(TOLD) tell(const TellArgs a) {
    const uint32_t i = threadIdx.x;
    float *told = a.told + STATISTICS;
    __shared__ uint32_t ended;
    take_turn();
    if (i == 0) ended = 0;
    __syncthreads();
    uint32_t own = 0;
    for (uint32_t slot = i; slot < TOTALS_SLOTS; slot += TOLD) own += (uint32_t)a.envs.totals[slot].episodes;
    atomicAdd(&ended, own);
    __syncthreads();
    if (i == 0) told[3 * TOLD] = from_bits((int32_t)ended);
    if (i < 32) {
        int64_t returned = 0;
        uint64_t envs = 0;
        for (int slot = i; slot < STANDING_SLOTS; slot += 32) {
            returned += a.standing[slot].returned, envs += a.standing[slot].envs;
            a.standing[slot] = {0, 0};
        }
        returned = warp_sum(returned), envs = warp_sum(envs);
        if (i == 0) told[3 * TOLD + 1] = from_bits((int32_t)envs);
        if (i == 0) told[3 * TOLD + 2] = envs > 0 ? (float)((double)returned / 1048576.0 / (double)envs) : 0.0f;
    }
    if (i < STATISTICS) a.told[i] = a.report[i];
    if (i < a.envs.count) {
        told[i] = a.finished.returned[i];
        told[TOLD + i] = from_bits(a.finished.length[i]);
        told[2 * TOLD + i] = from_bits((int32_t)a.finished.episodes[i]);
    }
    /* The host waits for the turn: by then all else is there. */
    __syncthreads();
    if (i == 0) {
        __threadfence_system();
        *(volatile float *)&told[3 * TOLD + 3] = from_bits((int32_t)a.turn);
    }
}
#endif

static_assert(sizeof(EstimateArgs) == ESTIMATE_BYTES && sizeof(TellArgs) == TELL_BYTES && sizeof(MergeArgs) == MERGE_BYTES,
              "algo/ppo/cuda.rs has the same structs");
