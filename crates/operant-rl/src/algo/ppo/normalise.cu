/* Running means and variances of what envs show and of discounted returns, as data/running.rs has them, between env/adapter.cu and
   collect.cu. `collect` looks through the numbers of the launch before and adds up what it saw; `merge` takes that into account.
   Defined before this text: PART (COLLECTING or LEARNING), NORMALISE_OBS, NORMALISE_REWARD, OBS_LIMIT, REWARD_LIMIT. */
#define SEEN (OBS + 1) /* columns: an observation's, then the discounted return */

/* The sum over a warp, which each of its threads gets. */
template <typename T> FN T warp_sum(T x) {
#pragma unroll
    for (int other = 16; other > 0; other /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, other);
    return x;
}

struct View {
    float shift[SEEN], factor[SEEN];
};
struct Normaliser {
    View *view;
    double *sums;      /* [warps of collect, 2, SEEN]: of distances from the shift, and of their squares */
    double *running;   /* [SEEN, 3]: count, mean, sum of squared distances from it */
    float *discounted; /* [N] */
};

/* What a thread saw since the launch began. */
struct Sums {
    float sum[SEEN], squares[SEEN];
};
FN void see(Sums &sums, const View &view, int column, float x) {
    const float distance = x - view.shift[column];
    sums.sum[column] += distance;
    sums.squares[column] += distance * distance;
}
/* Limited to ±limit. What is not finite stays so: a limit would hide that nothing can be learned from it. */
FN float within(float x, float limit) { return fabsf(x) < INFINITY ? fminf(fmaxf(x, -limit), limit) : x; }
FN float through(const View &view, int column, float x, float limit) {
    return within((x - view.shift[column]) * view.factor[column], limit);
}

/* Adds up what a warp saw, in an order that does not change. */
FN void store_sums(const Normaliser &normaliser, uint32_t warp, int lane, int counts, const Sums &sums) {
#pragma unroll
    for (int k = 0; k < 2 * SEEN; k++) {
        const double x = warp_sum(counts ? (double)(k < SEEN ? sums.sum[k % SEEN] : sums.squares[k % SEEN]) : 0.0);
        if (lane == 0) normaliser.sums[(size_t)warp * 2 * SEEN + k] = x;
    }
}

struct MergeArgs {
    Normaliser normaliser;
    double rows; /* that `sums` are of; 0: only the view is made */
    uint32_t warps, unused;
};

#if PART != LEARNING
/* Merges as Chan, Golub & LeVeque (1979) do. A block of a warp per column. */
extern "C" __global__ void __launch_bounds__(32) merge(const MergeArgs a) {
    const int column = blockIdx.x, lane = threadIdx.x;
    double sum = 0.0, squares = 0.0;
    for (uint32_t w = lane; w < a.warps; w += 32) {
        sum += a.normaliser.sums[(size_t)w * 2 * SEEN + column];
        squares += a.normaliser.sums[(size_t)w * 2 * SEEN + SEEN + column];
    }
    sum = warp_sum(sum), squares = warp_sum(squares);
    if (lane != 0) return;
    double *running = a.normaliser.running + 3 * column;
    if (a.rows > 0.0) {
        const double mean = (double)a.normaliser.view->shift[column] + sum / a.rows, before = running[0];
        const double within = fmax(squares - sum * sum / a.rows, 0.0), distance = mean - running[1];
        running[0] = before + a.rows;
        running[1] += distance * a.rows / running[0];
        running[2] += within + distance * distance * before * a.rows / running[0];
    }
    const double variance = running[0] > 0.0 ? running[2] / running[0] : 1.0 - 1e-8;
    a.normaliser.view->shift[column] = (float)running[1];
    a.normaliser.view->factor[column] = (float)(1.0 / sqrt(variance + 1e-8));
}
#endif
