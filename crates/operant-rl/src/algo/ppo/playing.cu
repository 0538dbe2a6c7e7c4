/* Playing and minibatches around networks that run between kernels: what wide.cu and planned.cu share, after rollout.cu. A step is a run of
   the networks and `act`, or where the host steps the envs (HOSTED) `sample` and `take`. Defined before this text, beside what rollout.cu
   asks for: SLOTS (episodes that an env may truncate in a rollout), THREADS (of a block), MAX_EPOCHS, HOSTED.
   The text behind this one has ActArgs, which begin as Play, and for these `decide` (draws what an env does and keeps it), `show` (what the
   networks see next) and `show_last` (what they see of an episode that was cut short); BatchArgs, which begin as Minibatch; the kernels. */

/* What the host decides before an iteration. */
struct Now {
    uint32_t adam[7];
    uint32_t first_step;
    float clip, entropy; /* or factors of those that a plan has */
    uint32_t unused[2];
    Order orders[MAX_EPOCHS];
};

/* ---- Collecting ---- */

struct Play {
    Envs envs;
    Rollout rollout;
    Finished finished;
    Normaliser normaliser;
    const Now *now;
    const float *params, *outputs, *values; /* outputs: of the policy for each row; values: the first row's */
    uint32_t *cut_at; /* [SLOTS, N]: the rows of truncated episodes, plus 1; 0 for none */
    uint32_t *cuts;   /* [N]: how many */
    uint64_t seed;
    uint32_t t;
    float gamma;
};

FN void begin_env(const Play &a, uint32_t i) {
    a.cuts[i] = 0;
    for (int slot = 0; slot < SLOTS; slot++) a.cut_at[(size_t)slot * a.envs.count + i] = 0;
}
/* Takes a place of [SLOTS, N] for what the last observation of an episode is worth. */
FN size_t cut_place(const Play &a, uint32_t from) {
    const size_t at = (size_t)min(a.cuts[from], (uint32_t)max(SLOTS - 1, 0)) * a.envs.count + from;
    a.cuts[from] += 1;
    a.cut_at[at] = a.t + 1;
    return at;
}
/* The reward as it is learned from; `seen` gets how far the discounted return lies from the mean of such. */
FN float learned_reward(const Play &a, uint32_t from, int owner, float reward, int done, float &seen) {
#if NORMALISE_REWARD
    const View &view = *a.normaliser.view;
    const float discounted = a.normaliser.discounted[from] * a.gamma + reward;
    const float learned = within(reward * view.factor[OBS], REWARD_LIMIT);
    seen = discounted - view.shift[OBS];
    if (owner) a.normaliser.discounted[from] = done ? 0.0f : discounted;
    return learned;
#else
    seen = 0.0f;
    return reward;
#endif
}

/* The rollout's first row of an env. */
template <class Act> FN void keep_first(const Act &a, uint32_t i, float *obs) {
#pragma unroll
    for (int k = 0; k < OBS; k++) {
#if NORMALISE_OBS
        obs[k] = through(*a.normaliser.view, k, obs[k], OBS_LIMIT);
#endif
        a.rollout.obs[(size_t)i * OBS + k] = obs[k];
    }
    show(a, i, 0, obs);
    begin_env(a, i);
}

/* What step t of env `from` gave: `obs` is what it shows next, `last` what it showed last where the episode was cut short. Sums go to
   `warp`, whose threads all come here. */
template <class Act>
FN void keep_step(const Act &a, uint32_t from, int owner, uint32_t warp, float reward, int done, int cut, float *last, float *obs) {
    const size_t at = (size_t)a.t * a.envs.count + from;
#if NORMALISE_OBS || NORMALISE_REWARD
    const View view = *a.normaliser.view;
    Sums sums = {};
#endif
    float seen;
    reward = learned_reward(a, from, owner, reward, done, seen);
#if SLOTS > 0
    if (owner && cut) {
#if NORMALISE_OBS
#pragma unroll
        for (int k = 0; k < OBS; k++) last[k] = through(view, k, last[k], OBS_LIMIT);
#endif
        show_last(a, from, cut_place(a, from), last);
    }
#endif
#if NORMALISE_OBS
#pragma unroll
    for (int k = 0; k < OBS; k++) {
        see(sums, view, k, obs[k]);
        obs[k] = through(view, k, obs[k], OBS_LIMIT);
    }
#endif
    if (owner) {
        a.rollout.reward[at] = reward;
        a.rollout.done[at] = (uint8_t)done;
#pragma unroll
        for (int k = 0; k < OBS; k++) a.rollout.obs[(at + a.envs.count) * OBS + k] = obs[k];
        show(a, from, a.t + 1, obs);
    }
#if NORMALISE_OBS || NORMALISE_REWARD
    sums.sum[OBS] = seen, sums.squares[OBS] = seen * seen;
    store_sums(a.normaliser, warp, threadIdx.x % 32, owner, sums);
#endif
}

#if HOSTED
/* Envs `first` to `first + count`, which the host steps: what it wrote of their last step, and where it finds their actions, in its own
   memory, which kernels reach. */
struct Staged {
    const float *obs, *reward, *final_obs, *episode_return;
    const int32_t *episode_length;
    const uint8_t *terminated, *truncated, *legal;
    int32_t *action;
    uint32_t first, count, warp, unused; /* warp: the first that adds up for the normaliser */
};
template <class Act> struct Stage : Act {
    Staged staged;
};
static_assert(sizeof(Staged) == STAGED_BYTES, "algo/ppo/cuda/staged.rs has the same struct");

/* Notes that an episode of `env`, number i of these, has ended. */
FN void note_end(const Play &a, const Staged &staged, uint32_t i, uint32_t env) {
    Ended ended = {0, 0, 0};
    count_end(ended, staged.episode_length[i], staged.episode_return[i]);
    add_totals(a.envs, ended);
    a.finished.returned[env] = staged.episode_return[i];
    a.finished.length[env] = staged.episode_length[i];
    a.finished.episodes[env] += 1;
}

/* Actions of step t, for the host. */
template <class Act> FN void sample_env(const Stage<Act> &a) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.staged.count) return;
    int32_t action[ACTIONS];
    decide(a, a.staged.first + i, 1, i, a.staged.legal + (size_t)i * CHOICES, action);
#pragma unroll
    for (int k = 0; k < ACTIONS; k++) a.staged.action[(size_t)i * ACTIONS + k] = action[k];
}
#else
/* The rollout's first row. */
template <class Act> FN void observe_env(const Act &a) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.envs.count) return;
    int32_t s[STATE];
    float obs[OBS];
    load_state(a.envs, i, s);
    ENV_OBSERVE(s, obs);
    keep_first(a, i, obs);
}

/* Step t of all envs, by outputs of the networks for its row. */
template <class Act> FN void act_env(const Act &a) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x, n = a.envs.count;
    /* Whole warps go on: they add up what they see. */
    if (i - i % 32 >= n) return;
    const int owner = i < n;
    const uint32_t from = owner ? i : n - 1, env = a.envs.first_env + from;
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
    if (owner) {
        store_state(a.envs, i, s);
        store_episode(a.envs, i, own);
        if (ended.episodes != 0) add_totals(a.envs, ended);
    }
    keep_step(a, from, owner, i / 32, taken.reward, done, cut, last, obs);
}
#endif

struct SettleArgs {
    Rollout rollout;
    const float *values, *bias; /* of `rows` envs from `first` on, `stride` numbers apart; what each lacks, or null */
    uint32_t *cut_at;           /* [N] of a slot, or null: the values are of the rollout's last row */
    uint32_t envs, steps, first, rows;
    float gamma;
    uint32_t stride;
};
/* The value of the last row, or what truncated episodes would have gone on to be worth. */
extern "C" __global__ void __launch_bounds__(THREADS) settle(const SettleArgs a) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x, env = a.first + i;
    if (i >= a.rows) return;
    float value = a.values[(size_t)i * a.stride];
    if (a.bias) value += *a.bias;
    if (a.cut_at == nullptr) {
        a.rollout.value[(size_t)a.steps * a.envs + env] = value;
    } else if (a.cut_at[env] > 0) {
        a.rollout.reward[(size_t)(a.cut_at[env] - 1) * a.envs + env] += a.gamma * value;
        a.cut_at[env] = 0;
    }
}

/* ---- Learning ---- */

struct Minibatch {
    Rollout rollout;
    const Now *now;
    float2 *scales; /* [updates]: mean and 1 / deviation of advantages */
    uint32_t update, minibatches, of_minibatch, normalise;
};

FN const Order &order_of(const Minibatch &a) { return a.now->orders[a.update / a.minibatches]; }
/* Where sample number `place` of a minibatch lies in the rollout: in blocks of 16. */
FN size_t sample_at(const Minibatch &a, uint32_t place) {
    const uint32_t at = a.update % a.minibatches * a.of_minibatch + place;
    return (size_t)index_at(order_of(a), at / 16) * 16 + at % 16;
}

/* Scales of every minibatch, a block of 1024 threads each. In f64: advantages that hardly differ have squares that hardly differ. */
template <class Batch> FN void scale_batch(Batch a) {
    __shared__ double shared[2][32];
    double x = 0.0, y = 0.0;
    a.update = blockIdx.x;
    for (uint32_t place = threadIdx.x; a.normalise && place < a.of_minibatch; place += 1024) {
        const double advantage = a.rollout.advantage[sample_at(a, place)];
        x += advantage, y += advantage * advantage;
    }
    x = warp_sum(x), y = warp_sum(y);
    if (threadIdx.x % 32 == 0) shared[0][threadIdx.x / 32] = x, shared[1][threadIdx.x / 32] = y;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int warp = 1; warp < 32; warp++) x += shared[0][warp], y += shared[1][warp];
    const double samples = (double)a.of_minibatch;
    const float deviation = sqrtf((float)fmax((y - x * x / samples) / (samples - 1.0), 0.0));
    a.scales[a.update] = make_float2((float)(x / samples), a.normalise ? 1.0f / (deviation + 1e-8f) : 1.0f);
}

static_assert(sizeof(Now) == NOW_BYTES && sizeof(Play) == PLAY_BYTES && sizeof(SettleArgs) == SETTLE_BYTES && sizeof(Minibatch) == MINIBATCH_BYTES,
              "algo/ppo/cuda/playing.rs has the same structs");
