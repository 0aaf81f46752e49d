/* Coherent's steps for one sample after the other, compiled: what method.py and memory.py do in numpy, and explain.

The memory is (internal, mixture, a, b); what is found is e, log tau and P(all external). The plan has, one after the other,
the options below, the share ratio of each class, and of all heads together the bias and the weights, (dimensions,
heads x classes), each row padded to a multiple of 8. See core/_walk.h. */

#include "../../core/_samples.h"

enum { LOCAL, FEDAVG, GENERATIVE, OWN };  /* heads; the last only where a client has class means of its own */
enum { INTERNAL, MIXTURE, A, B, MEMORY };
enum { E, LOG_TAU, ALL_EXTERNAL, FOUND };
enum { HEADS, FROM_FEDAVG, FROM_GENERATIVE, LOG_TAU_LIMIT, FORGETTING, CHANGE, LARGE_ABOVE, OPTIONS };

typedef struct {
    const double *options, *ratios, *bias, *weights;
    Py_ssize_t heads, classes, dimensions, columns, work;
} Plan;

/* Take a sample into the memory; return e. */
static double remember(const double *options, double *memory, double log_tau, double *all_external)
{
    double kept = 1.0 - options[CHANGE], moved = options[CHANGE] * (1.0 / 3.0), forgetting = options[FORGETTING];
    double a = memory[A], b = memory[B];
    double tau = exponential(log_tau), evidence = a + b * tau, share = a / evidence;
    double external = kept * (1.0 - memory[INTERNAL] - memory[MIXTURE]) + moved;
    double internal = (kept * memory[INTERNAL] + moved) * tau;
    double mixture = (kept * memory[MIXTURE] + moved) * (evidence / (a + b));
    double all = internal + external + mixture;
    memory[INTERNAL] = internal / all;
    memory[MIXTURE] = mixture / all;
    memory[A] = 1.0 + forgetting * (a - 1.0) + share;
    memory[B] = 1.0 + forgetting * (b - 1.0) + (1.0 - share);
    *all_external = external / all;
    return *all_external + memory[MIXTURE] * share;
}

static void answer(const Plan *plan, const double *row, double *logits, double *memory, double *answers, double *found,
                   Py_ssize_t samples)
{
    const double *options = plan->options;
    const double *local = logits, *fedavg = logits + plan->classes, *generative = logits + 2 * plan->classes;
    Py_ssize_t classes = plan->classes;
    int is_large = dot(row, row, plan->dimensions) > options[LARGE_ABOVE];
    double totals[OWN + 1], lowered[OWN + 1], log_tau;
    multiply(logits, row, plan->weights, plan->bias, plan->dimensions, plan->columns);
    for (Py_ssize_t head = 0; head < plan->heads; head++) {
        double *weights = logits + head * classes; /* of its softmax, from here on */
        lowered[head] = is_large ? lower(weights, classes) : 0.0;
        exponentials(weights, classes);
        totals[head] = total(weights, classes);
    }
    if (plan->heads > OWN)
        log_tau = log(totals[OWN]) - log(totals[GENERATIVE]) + (lowered[OWN] - lowered[GENERATIVE]);
    else
        log_tau = log(dot(generative, plan->ratios, classes) / totals[GENERATIVE]);
    log_tau = within(log_tau, options[LOG_TAU_LIMIT]);
    double e = remember(options, memory, log_tau, &found[ALL_EXTERNAL * samples]);
    found[E * samples] = e;
    found[LOG_TAU * samples] = log_tau;
    double of_local = (1.0 - e) / totals[LOCAL], of_fedavg = e * options[FROM_FEDAVG] / totals[FEDAVG];
    double of_generative = e * options[FROM_GENERATIVE] / totals[GENERATIVE];
    for (Py_ssize_t k = 0; k < classes; k++)
        answers[k] = of_local * local[k] + of_fedavg * fedavg[k] + of_generative * generative[k];
}

/* Find the parts of the plan; 0 if features or classes are not of its size. */
static int read_plan(Plan *plan, const Batch *batch)
{
    if (batch->size <= OPTIONS)
        return 0;
    plan->options = batch->plan;
    plan->heads = (Py_ssize_t)plan->options[HEADS];
    plan->classes = batch->classes;
    plan->dimensions = batch->dimensions;
    plan->columns = plan->work = padded(plan->heads * plan->classes);
    plan->ratios = plan->options + OPTIONS;
    plan->bias = plan->ratios + plan->classes;
    plan->weights = plan->bias + plan->columns;
    return (plan->heads == OWN || plan->heads == OWN + 1) &&
           batch->size == OPTIONS + plan->classes + plan->columns * (1 + plan->dimensions);
}

#include "../../core/_walk.h"
