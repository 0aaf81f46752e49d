/* BTFL's steps for one sample after the other, compiled: what method.py, memory.py, evidence.py and weight.py do in numpy,
and explain. For settings that decide sample by sample, with the exact expectation.

The memory is (a, b); what is found is e, log tau, log tau_hat, the event, a and b that the sample was judged with, and both
entropies. The plan has, one after the other, the options below; of each point of the grid log m, log(1 - m), log of its
width, odds against; log odds of each dimension, local and then global; and of both heads together the bias and the weights, (dimensions,
2 x classes), each row padded to a multiple of 8. See core/_walk.h. */

#include "../../core/_samples.h"

enum { PERSONAL, GLOBAL, BOTH };  /* of heads, likelihoods and entropies */
enum { A, B, MEMORY };
enum { E, LOG_TAU, LOG_TAU_HAT, EVENT, JUDGED_A, JUDGED_B, LOCAL_ENTROPY, GLOBAL_ENTROPY, FOUND };
enum {
    POINTS, LOCAL_MEAN, GLOBAL_MEAN, LOCAL_SCALE, GLOBAL_SCALE, LOCAL_OFFSET, GLOBAL_OFFSET, THRESHOLD, LOG_U_LIMIT,
    LOG_TAU_LIMIT, PRUNE_ABOVE, PRUNE_TO, COUNTS_BEFORE, USE_HISTORY, USE_CHARACTERISTIC, USE_ENTROPY, LARGE_ABOVE, OPTIONS
};

typedef struct {
    const double *options, *log_m, *log_rest, *log_widths, *odds_against, *log_odds, *bias, *weights;
    Py_ssize_t points, classes, dimensions, columns, work;
    double known_a, known_b, total;  /* the Beta whose density on the grid is at hand, and its sum */
} Plan;

/* log Q of the features' bits, local and global. Every partial sum is exact, as it is in numpy. */
static void likelihoods(const Plan *plan, const double *row, double *bits, double *log_q)
{
    Py_ssize_t dimensions = plan->dimensions;
    for (Py_ssize_t i = 0; i < dimensions; i++)
        bits[i] = row[i] > plan->options[THRESHOLD] ? 1.0 : 0.0;
    for (int whose = 0; whose < BOTH; whose++)
        log_q[whose] = dot(bits, plan->log_odds + whose * dimensions, dimensions) + plan->options[LOCAL_OFFSET + whose];
}

/* +1 for an external event, -1 for an internal one, 0 for none. */
static int detect(const double *options, double log_tau, const double *entropies)
{
    double local = entropies[PERSONAL] - options[LOCAL_MEAN], global = entropies[GLOBAL] - options[GLOBAL_MEAN];
    int any = options[USE_ENTROPY] == 0.0;
    int external = log_tau < 0 && (any || (local > 0 && global < 0));
    int internal = log_tau > 0 && (any || (local < 0 && global > 0));
    return external - internal;
}

/* Count an event, and prune a history that has become too long. */
static void count_event(const double *options, int event, double *memory)
{
    if (event == 0 || options[USE_HISTORY] == 0.0)
        return;
    memory[event > 0 ? A : B] += 1.0;
    double a = memory[A], b = memory[B], total = a + b;
    if (total > options[PRUNE_ABOVE]) {
        memory[A] = 1.0 + options[PRUNE_TO] * a / total;
        memory[B] = 1.0 + options[PRUNE_TO] * b / total;
    }
}

static double rectified(const Plan *plan, const double *log_q, const double *entropies)
{
    const double *options = plan->options, *scales = options + LOCAL_SCALE;
    double powers[BOTH] = {1.0, 1.0};
    if (options[USE_CHARACTERISTIC] == 0.0)
        return 0.0;
    for (int head = 0; head < BOTH && options[USE_ENTROPY] != 0.0; head++) {
        double log_u = (entropies[head] - scales[head]) / scales[head];
        powers[head] = exponential(log_u < options[LOG_U_LIMIT] ? log_u : options[LOG_U_LIMIT]);
    }
    double difference = powers[PERSONAL] * log_q[PERSONAL] - powers[GLOBAL] * log_q[GLOBAL];
    return within(difference / (double)plan->dimensions, options[LOG_TAU_LIMIT]);
}

/* e = E[m_hat] under Beta(a, b); the density on the grid is kept while the memory stays as it is. */
static double expected_weight(Plan *plan, double *density, double a, double b, double log_tau_hat)
{
    double tau = exponential(log_tau_hat), *shares = density + plan->points;
    if (a != plan->known_a || b != plan->known_b) {
        plan->known_a = a;
        plan->known_b = b;
        for (Py_ssize_t i = 0; i < plan->points; i++)
            density[i] = a * plan->log_m[i] + b * plan->log_rest[i] + plan->log_widths[i];
        exponentials(density, plan->points);
        plan->total = total(density, plan->points);
    }
    for (Py_ssize_t i = 0; i < plan->points; i++)
        shares[i] = density[i] / (plan->odds_against[i] * tau + 1.0);
    return total(shares, plan->points) / plan->total;
}

static void answer(Plan *plan, const double *row, double *work, double *memory, double *answers, double *found,
                   Py_ssize_t samples)
{
    const double *options = plan->options;
    Py_ssize_t classes = plan->classes;
    double *density = work, *logits = density + 2 * plan->points, *weights = logits + plan->columns; /* of softmaxes */
    double *bits = weights + plan->columns, totals[BOTH], entropies[BOTH], log_q[BOTH];
    int is_large = dot(row, row, plan->dimensions) > options[LARGE_ABOVE];
    multiply(logits, row, plan->weights, plan->bias, plan->dimensions, plan->columns);
    for (int head = 0; head < BOTH && is_large; head++)
        lower(logits + head * classes, classes);
    memcpy(weights, logits, plan->columns * sizeof(double));
    exponentials(weights, BOTH * classes);
    for (int head = 0; head < BOTH; head++) {
        Py_ssize_t first = head * classes;
        totals[head] = total(weights + first, classes);
        entropies[head] = fmax(log(totals[head]) - dot(weights + first, logits + first, classes) / totals[head], 0.0);
    }
    likelihoods(plan, row, bits, log_q);
    double log_tau = log_q[PERSONAL] - log_q[GLOBAL], a = memory[A], b = memory[B];
    int event = detect(options, log_tau, entropies);
    count_event(options, event, memory);
    if (options[COUNTS_BEFORE] != 0.0) {
        a = memory[A];
        b = memory[B];
    }
    double log_tau_hat = rectified(plan, log_q, entropies);
    double e = expected_weight(plan, density, a, b, log_tau_hat);
    const double numbers[FOUND] = {e, log_tau, log_tau_hat, event, a, b, entropies[PERSONAL], entropies[GLOBAL]};
    for (int column = 0; column < FOUND; column++)
        found[column * samples] = numbers[column];
    double of_personal = (1.0 - e) / totals[PERSONAL], of_global = e / totals[GLOBAL];
    for (Py_ssize_t k = 0; k < classes; k++)
        answers[k] = of_personal * weights[k] + of_global * weights[classes + k];
}

/* Find the parts of the plan; 0 if features or classes are not of its size. */
static int read_plan(Plan *plan, const Batch *batch)
{
    if (batch->size <= OPTIONS)
        return 0;
    plan->options = batch->plan;
    plan->points = (Py_ssize_t)plan->options[POINTS];
    plan->classes = batch->classes;
    plan->dimensions = batch->dimensions;
    plan->columns = padded(BOTH * plan->classes);
    plan->work = 2 * (plan->points + plan->columns) + plan->dimensions;
    if (plan->points < 1 || plan->points > batch->size ||
        batch->size != OPTIONS + 4 * plan->points + 2 * plan->dimensions + plan->columns * (1 + plan->dimensions))
        return 0;
    plan->log_m = plan->options + OPTIONS;
    plan->log_rest = plan->log_m + plan->points;
    plan->log_widths = plan->log_rest + plan->points;
    plan->odds_against = plan->log_widths + plan->points;
    plan->log_odds = plan->odds_against + plan->points;
    plan->bias = plan->log_odds + 2 * plan->dimensions;
    plan->weights = plan->bias + plan->columns;
    plan->known_a = plan->known_b = plan->total = 0.0; /* no Beta: a and b are at least 1 */
    return 1;
}

#include "../../core/_walk.h"
