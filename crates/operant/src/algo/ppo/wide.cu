/* PPO around networks of any width, whose layers nn/cuda runs: after nn/cuda/numbers.cu, rollout.cu and scales.cu. A step is a pass of the networks
   and `act`; a minibatch is `gather`, a pass, `loss`, the way back and a step of Adam. Defined before this text, beside what rollout.cu
   asks for: CONTINUOUS, OUT_PITCH (numbers of a row of outputs), OBS_PITCH, ACTOR_BIAS CRITIC_BIAS LOG_STD (places among the
   parameters), SLOTS (episodes that an env may truncate in a rollout), THREADS (of a block), MAX_EPOCHS, HOSTED (whether the host steps the envs).
   Outputs are [2, rows, OUT_PITCH] of the policy and the value, without their last bias. */

/* What the host decides before an iteration. */
struct Now {
    uint32_t adam[7];
    uint32_t first_step;
    float clip, entropy;
    uint32_t unused[2];
    Order orders[MAX_EPOCHS];
};

/* One observation as products read it. */
FN void store_input(Number *to, const float *obs) {
#pragma unroll
    for (int first = 0; first < OBS_PITCH; first += 8) {
        float x[8];
#pragma unroll
        for (int k = 0; k < 8; k++) x[k] = first + k < OBS ? obs[first + k < OBS ? first + k : 0] : 0.0f;
        store8(to + first, x);
    }
}

FN float warp_sum(float x) {
#pragma unroll
    for (int other = 16; other > 0; other /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, other);
    return x;
}

/* ---- Collecting ---- */

struct ActArgs {
    Envs envs;
    Rollout rollout;
    Finished finished;
    Normaliser normaliser;
    const Now *now;
    const float *params, *output;
    Number *input;     /* [N, OBS_PITCH]: what the networks see next */
    Number *cut_input; /* [SLOTS, N, OBS_PITCH]: last observations of truncated episodes */
    uint32_t *cut_at;  /* [SLOTS, N]: the row of each, plus 1; 0 for none */
    uint32_t *cuts;    /* [N]: how many */
    uint64_t seed;
    uint32_t t;
    float gamma;
};

/* Draws what env `from` does in step t, by row `row` of the networks' `rows` rows of outputs, among what is legal, and keeps it. */
FN void decide(const ActArgs &a, uint32_t from, int owner, uint32_t row, uint32_t rows, const uint8_t *legal, int32_t *action) {
    const uint32_t env = a.envs.first_env + from, step = a.now->first_step + a.t;
    const size_t at = (size_t)a.t * a.envs.count + from;
    const float *y = a.output + (size_t)row * OUT_PITCH;
    float log_prob = 0.0f;
    uint32_t words[4];
    if (owner) a.rollout.value[at] = a.output[((size_t)rows + row) * OUT_PITCH] + a.params[CRITIC_BIAS];
#if CONTINUOUS
#pragma unroll
    for (int k = 0; k < OUT; k++) {
        const float mean = y[k] + a.params[ACTOR_BIAS + k];
        const float number = draw_number(mean, a.params[LOG_STD + k], k, step, env, a.seed, words, log_prob);
        action[k] = bits(number);
        if (owner) ((float *)a.rollout.action)[at * OUT + k] = number;
    }
#else
    float logits[OUT];
#pragma unroll
    for (int k = 0; k < OUT; k++) logits[k] = y[k] + a.params[ACTOR_BIAS + k];
#if CHOICES > 0
    mask(logits, legal);
    if (owner)
        for (int k = 0; k < CHOICES; k++) a.rollout.legal[at * CHOICES + k] = legal[k];
#endif
    philox(step / 4, 0, 0xFFFFFFFEu, env, a.seed, words);
    action[0] = draw_choice(logits, step, words, log_prob);
    if (owner) ((int32_t *)a.rollout.action)[at] = action[0];
#endif
    if (owner) a.rollout.log_prob[at] = log_prob;
}

/* The rollout's first row of an env. */
FN void keep_first(const ActArgs &a, uint32_t i, float *obs) {
#pragma unroll
    for (int k = 0; k < OBS; k++) {
#if NORMALISE_OBS
        obs[k] = through(*a.normaliser.view, k, obs[k], OBS_LIMIT);
#endif
        a.rollout.obs[(size_t)i * OBS + k] = obs[k];
    }
    store_input(a.input + (size_t)i * OBS_PITCH, obs);
    a.cuts[i] = 0;
    for (int slot = 0; slot < SLOTS; slot++) a.cut_at[(size_t)slot * a.envs.count + i] = 0;
}

/* What step t of env `from` gave: `obs` is what it shows next, `last` what it showed last where the episode was cut short. Sums go to
   `warp`, whose threads all come here. */
FN void keep_step(const ActArgs &a, uint32_t from, int owner, uint32_t warp, float reward, int done, int cut, float *last, float *obs) {
    const size_t at = (size_t)a.t * a.envs.count + from;
#if NORMALISE_OBS || NORMALISE_REWARD
    const View view = *a.normaliser.view;
    Sums sums = {};
#endif
#if NORMALISE_REWARD
    float discounted = a.normaliser.discounted[from] * a.gamma + reward;
    see(sums, view, OBS, discounted);
    if (done) discounted = 0.0f;
    reward = fminf(fmaxf(reward * view.factor[OBS], -REWARD_LIMIT), REWARD_LIMIT);
    if (owner) a.normaliser.discounted[from] = discounted;
#endif
#if SLOTS > 0
    if (owner && cut) {
#if NORMALISE_OBS
#pragma unroll
        for (int k = 0; k < OBS; k++) last[k] = through(view, k, last[k], OBS_LIMIT);
#endif
        const size_t slot = (size_t)min(a.cuts[from], SLOTS - 1) * a.envs.count + from;
        a.cuts[from] += 1;
        a.cut_at[slot] = a.t + 1;
        store_input(a.cut_input + slot * OBS_PITCH, last);
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
        store_input(a.input + (size_t)from * OBS_PITCH, obs);
    }
#if NORMALISE_OBS || NORMALISE_REWARD
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
struct StageArgs {
    ActArgs act;
    Staged staged;
};

/* The rollout's first row, from what the host showed last. */
extern "C" __global__ void __launch_bounds__(THREADS) begin(const StageArgs a) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.staged.count) return;
    float obs[OBS];
#pragma unroll
    for (int k = 0; k < OBS; k++) obs[k] = a.staged.obs[(size_t)i * OBS + k];
    keep_first(a.act, a.staged.first + i, obs);
}

/* Actions of step t, for the host. */
extern "C" __global__ void __launch_bounds__(THREADS) sample(const StageArgs a) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.staged.count) return;
    int32_t action[ACTIONS];
    decide(a.act, a.staged.first + i, 1, i, a.staged.count, a.staged.legal + (size_t)i * CHOICES, action);
#pragma unroll
    for (int k = 0; k < ACTIONS; k++) a.staged.action[(size_t)i * ACTIONS + k] = action[k];
}

/* What the host's step t gave. */
extern "C" __global__ void __launch_bounds__(THREADS) take(const StageArgs a) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x, lane = threadIdx.x % 32;
    /* Whole warps go on: they add up what they see. */
    if (i - lane >= a.staged.count) return;
    const int owner = i < a.staged.count;
    const uint32_t row = owner ? i : a.staged.count - 1, from = a.staged.first + row;
    const int terminated = a.staged.terminated[row], done = terminated | a.staged.truncated[row];
    const int cut = done && !terminated;
    float last[OBS], obs[OBS];
#pragma unroll
    for (int k = 0; k < OBS; k++) obs[k] = a.staged.obs[(size_t)row * OBS + k];
    if (cut) {
#pragma unroll
        for (int k = 0; k < OBS; k++) last[k] = a.staged.final_obs[(size_t)row * OBS + k];
    }
    if (owner && done) {
        Ended ended = {0, 0, 0};
        count_end(ended, a.staged.episode_length[row], a.staged.episode_return[row]);
        add_totals(a.act.envs, ended);
        a.act.finished.returned[from] = a.staged.episode_return[row];
        a.act.finished.length[from] = a.staged.episode_length[row];
        a.act.finished.episodes[from] += 1;
    }
    keep_step(a.act, from, owner, a.staged.warp + i / 32, a.staged.reward[row], done, cut, last, obs);
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
    keep_first(a, i, obs);
}

/* Step t of all envs, by outputs of the networks for its row. */
extern "C" __global__ void __launch_bounds__(THREADS) act(const ActArgs a) {
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
    decide(a, from, owner, from, n, legal, action);
    int resets, done;
    const Step taken = take_step(a.envs, env, s, own, action, resets, done);
    const int cut = taken.truncated && !taken.terminated;
    if (SLOTS > 0 && cut) ENV_OBSERVE(s, last);
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
    const float *params, *output;
    uint32_t *cut_at; /* [N] of a slot, or null: the outputs are of the rollout's last row */
    uint32_t envs, steps, first, rows; /* outputs are of `rows` envs from `first` on */
    float gamma;
    uint32_t unused;
};
/* The value of the last row, or what truncated episodes would have gone on to be worth. */
extern "C" __global__ void __launch_bounds__(THREADS) settle(const SettleArgs a) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.rows) return;
    const uint32_t env = a.first + i;
    const float value = a.output[((size_t)a.rows + i) * OUT_PITCH] + a.params[CRITIC_BIAS];
    if (a.cut_at == nullptr) {
        a.rollout.value[(size_t)a.steps * a.envs + env] = value;
    } else if (a.cut_at[env] > 0) {
        a.rollout.reward[(size_t)(a.cut_at[env] - 1) * a.envs + env] += a.gamma * value;
        a.cut_at[env] = 0;
    }
}

/* ---- Learning ---- */

struct BatchArgs {
    Rollout rollout;
    const Now *now;
    const float *params, *output;
    Number *input;      /* [rows, OBS_PITCH] */
    Number *d_output;   /* [2, rows, OUT_PITCH] */
    float2 *scales;     /* [updates]: mean and 1 / deviation of advantages */
    float *statistics;  /* [blocks, STATISTICS] */
    float *by_log_std;  /* [blocks, OUT_PITCH] */
    uint32_t update, minibatches, of_minibatch, first, rows; /* `first` of `rows` samples of the minibatch's `of_minibatch` */
    uint32_t adds, normalise, clip_value;
    float value, unused;
};

/* Where sample number `place` of a minibatch lies in the rollout: in blocks of 16. */
FN size_t sample_at(const BatchArgs &a, uint32_t place) {
    const Order &order = a.now->orders[a.update / a.minibatches];
    const uint32_t at = a.update % a.minibatches * a.of_minibatch + place;
    return (size_t)index_at(order, at / 16) * 16 + at % 16;
}

/* Of every minibatch, a block each. */
extern "C" __global__ void __launch_bounds__(1024) scale(BatchArgs a) {
    a.update = blockIdx.x;
    const float2 found = scale_of(a.rollout.advantage, a.of_minibatch, a.normalise, [&](uint32_t place) { return sample_at(a, place); });
    if (threadIdx.x == 0) a.scales[a.update] = found;
}

extern "C" __global__ void __launch_bounds__(THREADS) gather(const BatchArgs a) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x, row = i / (OBS_PITCH / 8), first = i % (OBS_PITCH / 8) * 8;
    if (row >= a.rows) return;
    const float *obs = a.rollout.obs + sample_at(a, a.first + row) * OBS;
    float x[8];
#pragma unroll
    for (int k = 0; k < 8; k++) x[k] = first + k < OBS ? obs[first + k] : 0.0f;
    store8(a.input + (size_t)i * 8, x);
}

FN void store_outputs(Number *to, float *d) {
#if F16
    /* Slopes of single samples, limited to what f16 holds with room for sums on the way back. */
#pragma unroll
    for (int k = 0; k < OUT_PITCH; k++) d[k] = fminf(fmaxf(d[k], -16384.0f), 16384.0f);
#endif
#pragma unroll
    for (int first = 0; first < OUT_PITCH; first += 8) store8(to + first, d + first);
}

/* Gradients of outputs, of a sum over samples, and sums of statistics: see `Reported`. */
extern "C" __global__ void __launch_bounds__(THREADS) loss(const BatchArgs a) {
    __shared__ float shared[THREADS / 32][STATISTICS + OUT_PITCH];
    const uint32_t row = blockIdx.x * THREADS + threadIdx.x, warp = threadIdx.x / 32;
    const int counts = row < a.rows;
    const size_t at = sample_at(a, a.first + (counts ? row : 0)), from = counts ? row : 0;
    const float share = 1.0f / (float)a.of_minibatch, clip = a.now->clip, by_entropy = a.now->entropy;
    const float2 scale = a.scales[a.update];
    const float unscaled = a.rollout.advantage[at], old_value = a.rollout.value[at], advantage = (unscaled - scale.x) * scale.y;
    const float *y = a.output + from * OUT_PITCH;
    float log_prob = 0.0f, entropy = 0.0f, u[OUT], z[OUT], d[OUT_PITCH] = {}, by_value[OUT_PITCH] = {};
#if CONTINUOUS
#pragma unroll
    for (int k = 0; k < OUT; k++) {
        const float log_std = a.params[LOG_STD + k];
        u[k] = __expf(-log_std);
        z[k] = (((const float *)a.rollout.action)[at * OUT + k] - y[k] - a.params[ACTOR_BIAS + k]) * u[k];
        log_prob -= 0.5f * z[k] * z[k] + log_std + 0.91893853f;
        entropy += log_std + 1.41893853f;
    }
#else
    const int action = ((const int32_t *)a.rollout.action)[at];
    float most = -INFINITY, total = 0.0f;
#pragma unroll
    for (int k = 0; k < OUT; k++) u[k] = y[k] + a.params[ACTOR_BIAS + k];
#if CHOICES > 0
    mask(u, a.rollout.legal + at * CHOICES);
#endif
#pragma unroll
    for (int k = 0; k < OUT; k++) most = fmaxf(most, u[k]);
#pragma unroll
    for (int k = 0; k < OUT; k++) z[k] = __expf(u[k] - most), total += z[k];
    const float log_total = most + __logf(total), inverse = __fdividef(1.0f, total);
#pragma unroll
    for (int k = 0; k < OUT; k++) {
        u[k] -= log_total, z[k] *= inverse;
        entropy -= z[k] * u[k];
        log_prob = action == k ? u[k] : log_prob;
    }
#endif
    const float log_ratio = log_prob - a.rollout.log_prob[at], ratio = __expf(log_ratio);
    const float free_loss = -advantage * ratio, limited_loss = -advantage * fminf(fmaxf(ratio, 1.0f - clip), 1.0f + clip);
    const float by_log_prob = free_loss >= limited_loss ? free_loss : 0.0f;
    const float value = a.output[((size_t)a.rows + from) * OUT_PITCH] + a.params[CRITIC_BIAS];
    float slope, sums[STATISTICS + OUT_PITCH] = {};
    const float squared = value_error(value, old_value, unscaled + old_value, clip, a.clip_value, slope);
    by_value[0] = slope * a.value;
#pragma unroll
    for (int k = 0; k < OUT; k++) {
#if CONTINUOUS
        d[k] = by_log_prob * z[k] * u[k];
        sums[STATISTICS + k] = by_log_prob * (z[k] * z[k] - 1.0f) - by_entropy;
#else
        d[k] = by_log_prob * ((action == k ? 1.0f : 0.0f) - z[k]) + by_entropy * z[k] * (u[k] + entropy);
#endif
    }
    if (counts) {
        store_outputs(a.d_output + from * OUT_PITCH, d);
        store_outputs(a.d_output + ((size_t)a.rows + from) * OUT_PITCH, by_value);
    }
    sums[0] = fmaxf(free_loss, limited_loss) * share, sums[1] = 0.5f * squared * share, sums[2] = entropy * share;
    sums[3] = -log_ratio * share, sums[4] = (ratio - 1.0f - log_ratio) * share;
    sums[5] = fabsf(ratio - 1.0f) > clip ? share : 0.0f;
    const int columns = STATISTICS + (CONTINUOUS ? OUT_PITCH : 0);
#pragma unroll
    for (int k = 0; k < columns; k++) {
        const float x = warp_sum(counts ? sums[k] : 0.0f);
        if (threadIdx.x % 32 == 0) shared[warp][k] = x;
    }
    __syncthreads();
    if (threadIdx.x >= columns) return;
    float x = 0.0f;
    for (int w = 0; w < THREADS / 32; w++) x += shared[w][threadIdx.x];
    float *to = threadIdx.x < STATISTICS ? a.statistics + (size_t)blockIdx.x * STATISTICS + threadIdx.x
                                         : a.by_log_std + (size_t)blockIdx.x * OUT_PITCH + threadIdx.x - STATISTICS;
    *to = a.adds ? *to + x : x;
}

static_assert(sizeof(Now) == NOW_BYTES && sizeof(ActArgs) == ACT_BYTES && sizeof(SettleArgs) == SETTLE_BYTES && sizeof(BatchArgs) == BATCH_BYTES,
              "algo/ppo/cuda/wide.rs has the same structs");
