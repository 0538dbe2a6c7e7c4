/* PPO around networks of any width, whose layers nn/cuda runs: after playing.cu and nn/cuda/numbers.cu. A step is a pass of the networks
   and `act`; a minibatch is `gather`, a pass, `loss`, the way back and a step of Adam. Defined before this text, beside what playing.cu
   asks for: CONTINUOUS, OUT_PITCH (numbers of a row of outputs), OBS_PITCH, ACTOR_BIAS CRITIC_BIAS LOG_STD (places among the parameters).
   Outputs are [2, rows, OUT_PITCH] of the policy and the value, without their last bias. */

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

/* ---- Collecting ---- */

struct ActArgs : Play {
    Number *input;     /* [N, OBS_PITCH]: what the networks see next */
    Number *cut_input; /* [SLOTS, N, OBS_PITCH]: last observations of truncated episodes */
};

/* Draws what env `from` does in step t, by row `row` of the outputs, among what is legal, and keeps it. */
FN void decide(const ActArgs &a, uint32_t from, int owner, uint32_t row, const uint8_t *legal, int32_t *action) {
    const uint32_t env = a.envs.first_env + from, step = a.now->first_step + a.t;
    const size_t at = (size_t)a.t * a.envs.count + from;
    const float *y = a.outputs + (size_t)row * OUT_PITCH;
    float log_prob = 0.0f;
    uint32_t words[4];
    if (owner) a.rollout.value[at] = a.values[(size_t)row * OUT_PITCH] + a.params[CRITIC_BIAS];
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

FN void show(const ActArgs &a, uint32_t from, uint32_t, const float *obs) { store_input(a.input + (size_t)from * OBS_PITCH, obs); }
FN void show_last(const ActArgs &a, uint32_t, size_t at, const float *last) { store_input(a.cut_input + at * OBS_PITCH, last); }

#if HOSTED
typedef Stage<ActArgs> StageArgs;

/* The rollout's first row, from what the host showed last. */
extern "C" __global__ void __launch_bounds__(THREADS) begin(const StageArgs a) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.staged.count) return;
    float obs[OBS];
#pragma unroll
    for (int k = 0; k < OBS; k++) obs[k] = a.staged.obs[(size_t)i * OBS + k];
    keep_first(a, a.staged.first + i, obs);
}

extern "C" __global__ void __launch_bounds__(THREADS) sample(const StageArgs a) { sample_env(a); }

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
    if (owner && done) note_end(a, a.staged, row, from);
    keep_step(a, from, owner, a.staged.warp + i / 32, a.staged.reward[row], done, cut, last, obs);
}
#else
extern "C" __global__ void __launch_bounds__(THREADS) observe(const ActArgs a) { observe_env(a); }
extern "C" __global__ void __launch_bounds__(THREADS) act(const ActArgs a) { act_env(a); }
#endif

/* ---- Learning ---- */

struct BatchArgs : Minibatch {
    const float *params, *output;
    Number *input;     /* [rows, OBS_PITCH] */
    Number *d_output;  /* [2, rows, OUT_PITCH] */
    float *statistics; /* [blocks, STATISTICS] */
    float *by_log_std; /* [blocks, OUT_PITCH] */
    uint32_t first, rows; /* `first` of `rows` samples of the minibatch */
    uint32_t adds, clip_value;
    float value, unused;
};

extern "C" __global__ void __launch_bounds__(1024) scale(const BatchArgs a) { scale_batch(a); }

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

static_assert(sizeof(ActArgs) == ACT_BYTES && sizeof(BatchArgs) == BATCH_BYTES, "algo/ppo/cuda/wide.rs has the same structs");
