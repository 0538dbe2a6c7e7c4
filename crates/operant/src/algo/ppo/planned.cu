/* PPO around networks that plans run (nn/plan/cuda.rs): after rollout.cu and scales.cu. A step is a run of the plan that acts, `act` and,
   for a network with a memory, `remember`; a minibatch is `gather`, a run of the plan that learns, and a step of Adam. Defined before this
   text, beside what rollout.cu asks for: CONTINUOUS, HEADS and HEAD_SIZES (choices of an action), LOG_STD (a place among the parameters),
   SLOTS (episodes that an env may truncate in a rollout), STATES and HIDDEN (parts of a state, and numbers of each), THREADS (of a block),
   MAX_EPOCHS, HOSTED (whether the host steps the envs).
   Plans read observations where the rollout has them: `row` tells them which of its rows. */

/* What the host decides before an iteration. */
struct Now {
    uint32_t adam[7];
    uint32_t first_step;
    float factors[2]; /* of clip and entropy */
    uint32_t unused[2];
    Order orders[MAX_EPOCHS];
};

/* ---- Collecting ---- */

struct ActArgs {
    Envs envs;
    Rollout rollout;
    Finished finished;
    Normaliser normaliser;
    const Now *now;
    const float *params, *outputs, *values; /* outputs: [rows, OUT] logits or means */
    float *cut_obs;     /* [SLOTS, N, OBS]: last observations of truncated episodes */
    uint32_t *cut_at;   /* [SLOTS, N]: the row of each, plus 1; 0 for none */
    uint32_t *cuts;     /* [N]: how many */
    uint32_t *cut_slot; /* [N]: of the last step, plus 1; 0 for none */
    uint32_t *row;
    uint64_t seed;
    uint32_t t;
    float gamma;
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
    a.rollout.value[at] = a.values[row];
    a.rollout.log_prob[at] = log_prob;
}

FN void begin_env(const ActArgs &a, uint32_t i) {
    a.cuts[i] = 0;
    for (int slot = 0; slot < SLOTS; slot++) a.cut_at[(size_t)slot * a.envs.count + i] = 0;
}
/* Takes a slot for what the last observation of an episode was worth. */
FN size_t cut_slot_of(const ActArgs &a, uint32_t from) {
    const uint32_t slot = min(a.cuts[from], (uint32_t)max(SLOTS - 1, 0));
    const size_t at = (size_t)slot * a.envs.count + from;
    a.cuts[from] += 1;
    a.cut_slot[from] = slot + 1;
    a.cut_at[at] = a.t + 1;
    return at;
}
/* The reward as it is learned from; `seen` gets how far the discounted return lies from the mean of such. */
FN float learned_reward(const ActArgs &a, uint32_t from, int owner, float reward, int done, float &seen) {
#if NORMALISE_REWARD
    const float discounted = a.normaliser.discounted[from] * a.gamma + reward;
    seen = discounted - a.normaliser.view->shift[OBS];
    if (owner) a.normaliser.discounted[from] = done ? 0.0f : discounted;
    return fminf(fmaxf(reward * a.normaliser.view->factor[OBS], -REWARD_LIMIT), REWARD_LIMIT);
#else
    seen = 0.0f;
    return reward;
#endif
}

#if HOSTED
/* Envs `first` to `first + count`, which the host steps: what it wrote of their last step, and where it finds their actions, in its own
   memory, which kernels reach. Observations may be images: a warp has an env. */
struct Staged {
    const float *obs, *reward, *final_obs, *episode_return;
    const int32_t *episode_length;
    const uint8_t *terminated, *truncated, *legal;
    int32_t *action;
    uint32_t first, count, warp, unused;
};
struct StageArgs {
    ActArgs act;
    Staged staged;
};
FN float shown(const ActArgs &a, int k, float x) { return NORMALISE_OBS ? through(*a.normaliser.view, k, x, OBS_LIMIT) : x; }

/* The rollout's first row, from what the host showed last. */
extern "C" __global__ void __launch_bounds__(THREADS) begin(const StageArgs a) {
    const uint32_t i = (blockIdx.x * THREADS + threadIdx.x) / 32, lane = threadIdx.x % 32, env = a.staged.first + i;
    if (i >= a.staged.count) return;
    for (int k = lane; k < OBS; k += 32) a.act.rollout.obs[(size_t)env * OBS + k] = shown(a.act, k, a.staged.obs[(size_t)i * OBS + k]);
    if (lane) return;
    begin_env(a.act, env);
    if (i == 0) *a.act.row = 0;
}

/* Actions of step t, for the host. */
extern "C" __global__ void __launch_bounds__(THREADS) sample(const StageArgs a) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.staged.count) return;
    int32_t action[ACTIONS];
    decide(a.act, a.staged.first + i, 1, i, a.staged.legal + (size_t)i * CHOICES, action);
    for (int k = 0; k < ACTIONS; k++) a.staged.action[(size_t)i * ACTIONS + k] = action[k];
}

/* What the host's step t gave. */
extern "C" __global__ void __launch_bounds__(THREADS) take(const StageArgs a) {
    const uint32_t i = (blockIdx.x * THREADS + threadIdx.x) / 32, lane = threadIdx.x % 32, env = a.staged.first + i;
    if (i >= a.staged.count) return;
    const int terminated = a.staged.terminated[i], done = terminated | a.staged.truncated[i], cut = done && !terminated;
    const size_t at = (size_t)a.act.t * a.act.envs.count + env;
    float *next = a.act.rollout.obs + (at + a.act.envs.count) * OBS;
    size_t slot = 0;
    if (lane == 0) {
        float seen;
        a.act.cut_slot[env] = 0;
        if (cut) slot = cut_slot_of(a.act, env);
        a.act.rollout.reward[at] = learned_reward(a.act, env, 1, a.staged.reward[i], done, seen);
        a.act.rollout.done[at] = (uint8_t)done;
        if (i == 0) *a.act.row = a.act.t + 1;
        if (done) {
            Ended ended = {0, 0, 0};
            count_end(ended, a.staged.episode_length[i], a.staged.episode_return[i]);
            add_totals(a.act.envs, ended);
            a.act.finished.returned[env] = a.staged.episode_return[i];
            a.act.finished.length[env] = a.staged.episode_length[i];
            a.act.finished.episodes[env] += 1;
        }
#if NORMALISE_OBS || NORMALISE_REWARD
        double *sums = a.act.normaliser.sums + (size_t)env * 2 * SEEN;
        sums[OBS] = seen, sums[SEEN + OBS] = (double)(seen * seen);
#endif
    }
    slot = __shfl_sync(0xFFFFFFFFu, slot, 0);
    for (int k = lane; k < OBS; k += 32) {
        const float x = a.staged.obs[(size_t)i * OBS + k];
        next[k] = shown(a.act, k, x);
        if (cut) a.act.cut_obs[slot * OBS + k] = shown(a.act, k, a.staged.final_obs[(size_t)i * OBS + k]);
#if NORMALISE_OBS || NORMALISE_REWARD
        double *sums = a.act.normaliser.sums + (size_t)env * 2 * SEEN;
        const float distance = x - a.act.normaliser.view->shift[k];
        sums[k] = distance, sums[SEEN + k] = (double)(distance * distance);
#endif
    }
}
static_assert(sizeof(StageArgs) == STAGE_BYTES, "algo/ppo/cuda/staged.rs has the same structs");
#else
/* The rollout's first row. */
extern "C" __global__ void __launch_bounds__(THREADS) observe(const ActArgs a) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.envs.count) return;
    int32_t s[STATE];
    float obs[OBS];
    load_state(a.envs, i, s);
    ENV_OBSERVE(s, obs);
#pragma unroll
    for (int k = 0; k < OBS; k++) a.rollout.obs[(size_t)i * OBS + k] = NORMALISE_OBS ? through(*a.normaliser.view, k, obs[k], OBS_LIMIT) : obs[k];
    begin_env(a, i);
    if (i == 0) *a.row = 0;
}

/* Step t of all envs, by outputs of the networks for its row. */
extern "C" __global__ void __launch_bounds__(THREADS) act(const ActArgs a) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x, n = a.envs.count;
    /* Whole warps go on: they add up what they see. */
    if (i - i % 32 >= n) return;
    const int owner = i < n;
    const uint32_t from = owner ? i : n - 1, env = a.envs.first_env + from;
    const size_t at = (size_t)a.t * n + from;
    int32_t s[STATE], action[ACTIONS];
    float last[OBS], obs[OBS];
    Own own;
    Ended ended = {0, 0, 0};
    load_state(a.envs, from, s);
    load_episode(a.envs, from, own);
    uint8_t legal[CHOICES + 1];
#if CHOICES > 0
    ENV_LEGAL(s, legal);
#endif
    decide(a, from, owner, from, legal, action);
    int resets, done;
    const Step taken = take_step(a.envs, env, s, own, action, resets, done);
    const int cut = SLOTS > 0 && taken.truncated && !taken.terminated;
    if (cut) ENV_OBSERVE(s, last);
    if (done) end_episode(a.finished, i, owner, env, s, own, ended);
    ENV_OBSERVE(s, obs);
    float seen;
    const float reward = learned_reward(a, from, owner, taken.reward, done, seen);
    if (owner) {
        store_state(a.envs, i, s);
        store_episode(a.envs, i, own);
        if (ended.episodes != 0) add_totals(a.envs, ended);
        a.rollout.reward[at] = reward;
        a.rollout.done[at] = (uint8_t)done;
        a.cut_slot[from] = 0;
        if (cut) {
            float *to = a.cut_obs + cut_slot_of(a, from) * OBS;
#pragma unroll
            for (int k = 0; k < OBS; k++) to[k] = NORMALISE_OBS ? through(*a.normaliser.view, k, last[k], OBS_LIMIT) : last[k];
        }
        if (i == 0) *a.row = a.t + 1;
    }
#if NORMALISE_OBS || NORMALISE_REWARD
    Sums sums = {};
#pragma unroll
    for (int k = 0; k < OBS; k++) see(sums, *a.normaliser.view, k, obs[k]);
    sums.sum[OBS] = seen, sums.squares[OBS] = seen * seen;
    store_sums(a.normaliser, i / 32, threadIdx.x % 32, owner, sums);
#endif
    float *next = a.rollout.obs + (at + n) * OBS;
#pragma unroll
    for (int k = 0; k < OBS; k++)
        if (owner) next[k] = NORMALISE_OBS ? through(*a.normaliser.view, k, obs[k], OBS_LIMIT) : obs[k];
}
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
    const uint32_t slot = a.cut_slot[env];
#pragma unroll
    for (int part = 0; part < STATES; part++) {
        const float x = a.after.of[part][i];
        if (slot) a.cut.of[part][((size_t)(slot - 1) * a.envs + env) * HIDDEN + k] = x;
        a.state.of[part][(size_t)env * HIDDEN + k] = done ? 0.0f : x;
    }
}

struct PointArgs {
    uint32_t *row;
    uint32_t value, unused;
};
extern "C" __global__ void point(const PointArgs a) { *a.row = a.value; }

struct SettleArgs {
    Rollout rollout;
    const float *values;
    uint32_t *cut_at; /* [N] of a slot, or null: the values are of the rollout's last row */
    uint32_t envs, steps, first, rows; /* values are of `rows` envs from `first` on */
    float gamma;
    uint32_t unused;
};
/* The value of the last row, or what truncated episodes would have gone on to be worth. */
extern "C" __global__ void __launch_bounds__(THREADS) settle(const SettleArgs a) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x, env = a.first + i;
    if (i >= a.rows) return;
    if (a.cut_at == nullptr) {
        a.rollout.value[(size_t)a.steps * a.envs + env] = a.values[i];
    } else if (a.cut_at[env] > 0) {
        a.rollout.reward[(size_t)(a.cut_at[env] - 1) * a.envs + env] += a.gamma * a.values[i];
        a.cut_at[env] = 0;
    }
}

/* ---- Learning ---- */

struct BatchArgs {
    Rollout rollout;
    const Now *now;
    float2 *scales; /* [updates]: mean and 1 / deviation of advantages */
    States before, state; /* [N, HIDDEN] before the rollout; [sequences, HIDDEN] of the minibatch */
    float *obs, *resets, *log_prob, *advantage, *returns, *value, *legal, *factors; /* inputs of the plan, `of_minibatch` places each */
    int32_t *action;
    uint32_t update, minibatches, of_minibatch, envs, steps, normalise;
};

/* The env of sequence number `row` of a minibatch. */
FN uint32_t env_at(const BatchArgs &a, uint32_t row) {
    return index_at(a.now->orders[a.update / a.minibatches], a.update % a.minibatches * (a.of_minibatch / a.steps) + row);
}
/* Where sample number `place` of a minibatch lies in the rollout: whole sequences where there is a memory, else blocks of 16. */
FN size_t sample_at(const BatchArgs &a, uint32_t place) {
    if (STATES > 0) return (size_t)(place % a.steps) * a.envs + env_at(a, place / a.steps);
    const uint32_t at = a.update % a.minibatches * a.of_minibatch + place;
    return (size_t)index_at(a.now->orders[a.update / a.minibatches], at / 16) * 16 + at % 16;
}

/* Of every minibatch, a block each. */
extern "C" __global__ void __launch_bounds__(1024) scale(BatchArgs a) {
    a.update = blockIdx.x;
    const float2 found = scale_of(a.rollout.advantage, a.of_minibatch, a.normalise, [&](uint32_t place) { return sample_at(a, place); });
    if (threadIdx.x == 0) a.scales[a.update] = found;
}

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
    if (place == 0) a.factors[0] = a.now->factors[0], a.factors[1] = a.now->factors[1];
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

static_assert(sizeof(Now) == NOW_BYTES && sizeof(ActArgs) == ACT_BYTES && sizeof(RememberArgs) == REMEMBER_BYTES &&
                  sizeof(SettleArgs) == SETTLE_BYTES && sizeof(BatchArgs) == BATCH_BYTES && sizeof(SumUpArgs) == SUM_UP_BYTES,
              "algo/ppo/cuda/planned.rs has the same structs");
