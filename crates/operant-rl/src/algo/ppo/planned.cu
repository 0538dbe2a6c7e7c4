/* PPO around networks that plans run (nn/plan/cuda.rs): after playing.cu. A step is a run of the plan that acts, `act` and, for a network
   with a memory, `remember`; a minibatch is `gather`, a run of the plan that learns, and a step of Adam. Defined before this text, beside
   what playing.cu asks for: CONTINUOUS, HEADS and HEAD_SIZES (choices of an action), LOG_STD (a place among the parameters), STATES and
   HIDDEN (parts of a state, and numbers of each).
   Plans read observations where the rollout has them: `row` tells them which of its rows. */

/* ---- Collecting ---- */

struct ActArgs : Play {
    float *cut_obs;     /* [SLOTS, N, OBS]: last observations of truncated episodes */
    uint32_t *cut_slot; /* [N]: the place among these of what was truncated in the last step, plus 1; 0 for none */
    uint32_t *row;
};

/* A choice among those that are legal, by logits; adds its log-probability. */
FN int draw_head(const float *y, const uint8_t *legal, int count, uint32_t word, float &log_prob) {
    float most = -INFINITY, total = 0.0f, below = 0.0f;
    for (int k = 0; k < count; k++)
        if (!legal || legal[k]) most = fmaxf(most, y[k]);
    for (int k = 0; k < count; k++)
        if (!legal || legal[k]) total += expf(y[k] - most);
    const float point = uniform(word) * total;
    int choice = 0;
    for (int k = 0; k < count; k++) {
        const float chance = !legal || legal[k] ? expf(y[k] - most) : 0.0f;
        if (chance == 0.0f) continue;
        choice = k;
        below += chance;
        if (point < below) break;
    }
    log_prob += y[choice] - most - logf(total);
    return choice;
}

/* Draws what env `from` does in step t, by row `row` of the outputs, among what is legal, and keeps it. */
FN void decide(const ActArgs &a, uint32_t from, int owner, uint32_t row, const uint8_t *legal, int32_t *action) {
    const uint32_t env = a.envs.first_env + from, step = a.now->first_step + a.t;
    const size_t at = (size_t)a.t * a.envs.count + from;
    const float *y = a.outputs + (size_t)row * OUT;
    float log_prob = 0.0f;
    uint32_t words[4];
#if CONTINUOUS
    for (int k = 0; k < OUT; k++) action[k] = bits(draw_number(y[k], a.params[LOG_STD + k], k, step, env, a.seed, words, log_prob));
#else
    const int sizes[HEADS] = HEAD_SIZES;
    int first = 0;
    for (int head = 0; head < HEADS; head++) {
        if (head % 4 == 0) philox(step, (uint32_t)(head / 4), 0xFFFFFFFEu, env, a.seed, words);
        action[head] = draw_head(y + first, CHOICES > 0 ? legal + first : nullptr, sizes[head], words[head % 4], log_prob);
        first += sizes[head];
    }
#endif
    if (!owner) return;
    for (int k = 0; k < ACTIONS; k++) ((int32_t *)a.rollout.action)[at * ACTIONS + k] = action[k];
    for (int k = 0; k < CHOICES; k++) a.rollout.legal[at * CHOICES + k] = legal[k];
    a.cut_slot[from] = 0;
    a.rollout.value[at] = a.values[row];
    a.rollout.log_prob[at] = log_prob;
}

FN void show(const ActArgs &a, uint32_t from, uint32_t t, const float *) {
    if (from == 0) *a.row = t;
}
FN void show_last(const ActArgs &a, uint32_t from, size_t at, const float *last) {
#pragma unroll
    for (int k = 0; k < OBS; k++) a.cut_obs[at * OBS + k] = last[k];
    a.cut_slot[from] = (uint32_t)at + 1;
}

#if HOSTED
/* Observations may be images: a warp has an env. */
typedef Stage<ActArgs> StageArgs;
FN float shown(const ActArgs &a, int k, float x) { return NORMALISE_OBS ? through(*a.normaliser.view, k, x, OBS_LIMIT) : x; }

/* The rollout's first row, from what the host showed last. */
extern "C" __global__ void __launch_bounds__(THREADS) begin(const StageArgs a) {
    const uint32_t i = (blockIdx.x * THREADS + threadIdx.x) / 32, lane = threadIdx.x % 32, env = a.staged.first + i;
    if (i >= a.staged.count) return;
    for (int k = lane; k < OBS; k += 32) a.rollout.obs[(size_t)env * OBS + k] = shown(a, k, a.staged.obs[(size_t)i * OBS + k]);
    if (lane) return;
    begin_env(a, env);
    if (i == 0) *a.row = 0;
}

extern "C" __global__ void __launch_bounds__(THREADS) sample(const StageArgs a) { sample_env(a); }

/* What the host's step t gave. */
extern "C" __global__ void __launch_bounds__(THREADS) take(const StageArgs a) {
    const uint32_t i = (blockIdx.x * THREADS + threadIdx.x) / 32, lane = threadIdx.x % 32, env = a.staged.first + i;
    if (i >= a.staged.count) return;
    const int terminated = a.staged.terminated[i], done = terminated | a.staged.truncated[i], cut = done && !terminated;
    const size_t at = (size_t)a.t * a.envs.count + env;
    float *next = a.rollout.obs + (at + a.envs.count) * OBS;
    size_t place = 0;
    if (lane == 0) {
        float seen;
        if (cut) {
            place = cut_place(a, env);
            a.cut_slot[env] = (uint32_t)place + 1;
        }
        a.rollout.reward[at] = learned_reward(a, env, 1, a.staged.reward[i], done, seen);
        a.rollout.done[at] = (uint8_t)done;
        if (i == 0) *a.row = a.t + 1;
        if (done) note_end(a, a.staged, i, env);
#if NORMALISE_OBS || NORMALISE_REWARD
        double *sums = a.normaliser.sums + (size_t)env * 2 * SEEN;
        sums[OBS] = seen, sums[SEEN + OBS] = (double)(seen * seen);
#endif
    }
    place = __shfl_sync(0xFFFFFFFFu, place, 0);
    for (int k = lane; k < OBS; k += 32) {
        const float x = a.staged.obs[(size_t)i * OBS + k];
        next[k] = shown(a, k, x);
        if (cut) a.cut_obs[place * OBS + k] = shown(a, k, a.staged.final_obs[(size_t)i * OBS + k]);
#if NORMALISE_OBS || NORMALISE_REWARD
        double *sums = a.normaliser.sums + (size_t)env * 2 * SEEN;
        const float distance = x - a.normaliser.view->shift[k];
        sums[k] = distance, sums[SEEN + k] = (double)(distance * distance);
#endif
    }
}
#else
extern "C" __global__ void __launch_bounds__(THREADS) observe(const ActArgs a) { observe_env(a); }
extern "C" __global__ void __launch_bounds__(THREADS) act(const ActArgs a) { act_env(a); }
#endif

/* A pointer for each part of a state. */
struct States {
    float *of[2];
};
struct RememberArgs {
    Rollout rollout;
    const uint32_t *cut_slot;
    States state, after, cut; /* [N, HIDDEN]; [rows, HIDDEN] after the step; [SLOTS, N, HIDDEN] where episodes were truncated */
    uint32_t envs, first, rows, t;
};
/* What the networks remember after step t: nothing where an episode ended. */
extern "C" __global__ void __launch_bounds__(THREADS) remember(const RememberArgs a) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x, env = a.first + i / max(HIDDEN, 1), k = i % max(HIDDEN, 1);
    if (i >= a.rows * HIDDEN) return;
    const int done = a.rollout.done[(size_t)a.t * a.envs + env];
    const uint32_t place = a.cut_slot[env];
#pragma unroll
    for (int part = 0; part < STATES; part++) {
        const float x = a.after.of[part][i];
        if (place) a.cut.of[part][(size_t)(place - 1) * HIDDEN + k] = x;
        a.state.of[part][(size_t)env * HIDDEN + k] = done ? 0.0f : x;
    }
}

struct PointArgs {
    uint32_t *row;
    uint32_t value, unused;
};
extern "C" __global__ void point(const PointArgs a) { *a.row = a.value; }

/* ---- Learning ---- */

struct BatchArgs : Minibatch {
    States before, state; /* [N, HIDDEN] before the rollout; [sequences, HIDDEN] of the minibatch */
    float *obs, *resets, *log_prob, *advantage, *returns, *value, *legal, *factors; /* inputs of the plan, `of_minibatch` places each */
    int32_t *action;
    uint32_t envs, steps;
};

#if STATES > 0
/* The env of sequence number `row` of a minibatch. */
FN uint32_t env_at(const BatchArgs &a, uint32_t row) {
    return index_at(order_of(a), a.update % a.minibatches * (a.of_minibatch / a.steps) + row);
}
/* Where sample number `place` of whole sequences lies in the rollout. */
FN size_t sample_at(const BatchArgs &a, uint32_t place) { return (size_t)(place % a.steps) * a.envs + env_at(a, place / a.steps); }
#endif

extern "C" __global__ void __launch_bounds__(1024) scale(const BatchArgs a) { scale_batch(a); }

/* A warp for each place. */
extern "C" __global__ void __launch_bounds__(THREADS) gather(const BatchArgs a) {
    const uint32_t place = (blockIdx.x * THREADS + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (place >= a.of_minibatch) return;
    const size_t at = sample_at(a, place);
    for (int k = lane; k < OBS; k += 32) a.obs[(size_t)place * OBS + k] = a.rollout.obs[at * OBS + k];
    for (int k = lane; k < ACTIONS; k += 32) a.action[(size_t)place * ACTIONS + k] = ((const int32_t *)a.rollout.action)[at * ACTIONS + k];
    for (int k = lane; k < CHOICES; k += 32) a.legal[(size_t)place * CHOICES + k] = a.rollout.legal[at * CHOICES + k] ? 1.0f : 0.0f;
#if STATES > 0
    if (place % a.steps == 0) {
        const uint32_t row = place / a.steps, env = env_at(a, row);
#pragma unroll
        for (int part = 0; part < STATES; part++)
            for (int k = lane; k < HIDDEN; k += 32) a.state.of[part][(size_t)row * HIDDEN + k] = a.before.of[part][(size_t)env * HIDDEN + k];
    }
    if (lane == 0) a.resets[place] = place % a.steps ? (float)a.rollout.done[at - a.envs] : 0.0f;
#endif
    if (lane) return;
    const float2 scale = a.scales[a.update];
    const float advantage = a.rollout.advantage[at], value = a.rollout.value[at];
    a.log_prob[place] = a.rollout.log_prob[at];
    a.advantage[place] = (advantage - scale.x) * scale.y;
    a.returns[place] = advantage + value;
    a.value[place] = value;
    if (place == 0) a.factors[0] = a.now->clip, a.factors[1] = a.now->entropy;
}

struct SumUpArgs {
    const float *sums; /* [steps, 6]: of the plan's statistics, over rows */
    float *report;
    uint32_t steps;
    float share;
};
/* Means of the last minibatch's statistics. */
extern "C" __global__ void sum_up(const SumUpArgs a) {
    if (threadIdx.x >= 6) return;
    float sum = 0.0f;
    for (uint32_t t = 0; t < a.steps; t++) sum += a.sums[t * 6 + threadIdx.x];
    a.report[threadIdx.x] = sum * a.share;
}

static_assert(sizeof(ActArgs) == ACT_BYTES && sizeof(RememberArgs) == REMEMBER_BYTES && sizeof(BatchArgs) == BATCH_BYTES &&
                  sizeof(SumUpArgs) == SUM_UP_BYTES,
              "algo/ppo/cuda/planned.rs has the same structs");
