/* What the compiled steps of both methods share: Python's arrays, a sample's features, the product with all heads.

Plain C of 1999 and Python's stable ABI of 3.11; numpy is met through the buffer protocol alone. The methods' own formulas
are in methods/btfl/_compiled.c and methods/coherent/_compiled.c, beside the numpy code that they repeat.

No sum is taken in another order for another batch, processor or width of its registers, so that an answer is the same to
the bit however a stream is cut. So compile without fused multiply-adds and without -ffast-math. */

#ifndef BTFL_SAMPLES_H
#define BTFL_SAMPLES_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef _MSC_VER
#define restrict __restrict
#endif

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define ON_WIDE_REGISTERS __attribute__((target_clones("avx512f", "avx2", "default"))) /* chosen when it is loaded */
#else
#define ON_WIDE_REGISTERS
#endif

enum { NARROW = 8, WIDE = 32 }; /* columns that are added up side by side; rows of weights are padded to the first */

/* ---- one sample ---- */

/* How many columns a row of weights has with its padding. */
static Py_ssize_t padded(Py_ssize_t columns)
{
    return (columns + NARROW - 1) / NARROW * NARROW;
}

static inline void multiply_some(double *restrict logits, const double *restrict row, const double *restrict weights,
                                 const double *restrict bias, Py_ssize_t dimensions, Py_ssize_t columns, int some)
{
    double sums[WIDE] = {0.0};
    for (Py_ssize_t i = 0; i < dimensions; i++)
        for (int j = 0; j < some; j++)
            sums[j] += row[i] * weights[i * columns + j];
    for (int j = 0; j < some; j++)
        logits[j] = sums[j] + bias[j];
}

/* logits = bias + row times weights, (dimensions, columns); all padded. */
ON_WIDE_REGISTERS static void multiply(double *restrict logits, const double *restrict row, const double *restrict weights,
                                       const double *restrict bias, Py_ssize_t dimensions, Py_ssize_t columns)
{
    Py_ssize_t first = 0;
    for (; first + WIDE <= columns; first += WIDE)
        multiply_some(logits + first, row, weights + first, bias + first, dimensions, columns, WIDE);
    switch ((columns - first) / NARROW) { /* what is left at once, too: an addition waits for the one before it */
    case 1:
        multiply_some(logits + first, row, weights + first, bias + first, dimensions, columns, NARROW);
        break;
    case 2:
        multiply_some(logits + first, row, weights + first, bias + first, dimensions, columns, 2 * NARROW);
        break;
    case 3:
        multiply_some(logits + first, row, weights + first, bias + first, dimensions, columns, 3 * NARROW);
        break;
    default:
        break;
    }
}

/* Replace numbers by their exponentials, to about 1 in 1e16; what is beyond -708 or 709 counts as that.

exp(x) = 2^k exp(r) with k the nearest whole number to x / log 2, found by adding a number so large that it has no digits
below 1; then its lowest bits are k, and belong into the exponent. |r| is at most 0.35, so that 14 terms of the series do. */
ON_WIDE_REGISTERS static void exponentials(double *numbers, Py_ssize_t count)
{
    const double no_digits = 6755399441055744.0; /* 1.5 * 2^52 */
    for (Py_ssize_t i = 0; i < count; i++) {
        union { double number; unsigned long long bits; } nearest, power;
        double x = numbers[i] < -708.0 ? -708.0 : numbers[i] > 709.0 ? 709.0 : numbers[i];
        nearest.number = x * 1.4426950408889634 + no_digits;
        double k = nearest.number - no_digits;
        double r = (x - k * 0.693145751953125) - k * 1.4286068203094173e-06; /* log 2 in two parts, the first short */
        double series = 1.0 / 6227020800.0;
        series = series * r + 1.0 / 479001600.0;
        series = series * r + 1.0 / 39916800.0;
        series = series * r + 1.0 / 3628800.0;
        series = series * r + 1.0 / 362880.0;
        series = series * r + 1.0 / 40320.0;
        series = series * r + 1.0 / 5040.0;
        series = series * r + 1.0 / 720.0;
        series = series * r + 1.0 / 120.0;
        series = series * r + 1.0 / 24.0;
        series = series * r + 1.0 / 6.0;
        series = series * r + 0.5;
        series = series * r + 1.0;
        series = series * r + 1.0;
        power.bits = (nearest.bits + 1023) << 52;
        numbers[i] = series * power.number;
    }
}

static double exponential(double number)
{
    exponentials(&number, 1);
    return number;
}

static double dot(const double *restrict one, const double *restrict other, Py_ssize_t count)
{
    double sums[NARROW] = {0.0};
    Py_ssize_t i = 0;
    for (; i + NARROW <= count; i += NARROW)
        for (int j = 0; j < NARROW; j++)
            sums[j] += one[i + j] * other[i + j];
    for (int j = 0; i + j < count; j++)
        sums[j] += one[i + j] * other[i + j];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

static double total(const double *numbers, Py_ssize_t count)
{
    double sums[NARROW] = {0.0};
    Py_ssize_t i = 0;
    for (; i + NARROW <= count; i += NARROW)
        for (int j = 0; j < NARROW; j++)
            sums[j] += numbers[i + j];
    for (int j = 0; i + j < count; j++)
        sums[j] += numbers[i + j];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/* Lower logits by their largest, so that none is too large for exp; return by how much. */
static double lower(double *logits, Py_ssize_t classes)
{
    double largest = logits[0];
    for (Py_ssize_t k = 1; k < classes; k++)
        largest = logits[k] > largest ? logits[k] : largest;
    for (Py_ssize_t k = 0; k < classes; k++)
        logits[k] -= largest;
    return largest;
}

static double within(double value, double limit)
{
    return value > limit ? limit : value < -limit ? -limit : value;
}

/* ---- Python's arrays ---- */

typedef struct {
    Py_buffer view;
    int is_held;
} Array;

/* Take hold of an array's memory; 0 and no exception if it is not in C order, or has other dimensions. */
static int take_hold(Array *array, PyObject *object, int dimensions, int flags)
{
    array->is_held = PyObject_GetBuffer(object, &array->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | flags) == 0;
    if (!array->is_held)
        PyErr_Clear();
    return array->is_held && array->view.ndim == dimensions && strlen(array->view.format) == 1;
}

static int holds(const Array *array, char type)
{
    return array->view.format[0] == type;
}

static int hold_doubles(Array *array, PyObject *object, int dimensions, int flags)
{
    return take_hold(array, object, dimensions, flags) && holds(array, 'd');
}

static void release(Array *array)
{
    if (array->is_held)
        PyBuffer_Release(&array->view);
}

/* Read the numbers of a tuple of floats; 0 with an exception if it holds others. */
static int read_floats(PyObject *tuple, Py_ssize_t count, double *numbers)
{
    if (PyTuple_Size(tuple) != count) {
        PyErr_SetString(PyExc_ValueError, "the memory is not one of this method");
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        numbers[i] = PyFloat_AsDouble(PyTuple_GetItem(tuple, i));
        if (numbers[i] == -1.0 && PyErr_Occurred())
            return 0;
    }
    return 1;
}

/* ---- a batch ---- */

typedef struct {
    Array numbers, features, answers, found;
    const double *plan;
    Py_ssize_t size, samples, dimensions, classes;
} Batch;

static void close_batch(Batch *batch)
{
    release(&batch->numbers);
    release(&batch->features);
    release(&batch->answers);
    release(&batch->found);
}

/* Take hold of what walk is given: 1 if it is as it should be, 0 if not for us, -1 with an exception. */
static int open_batch(Batch *batch, PyObject *const *given, Py_ssize_t count, Py_ssize_t columns)
{
    memset(batch, 0, sizeof *batch);
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "walk takes plan, features, memory, answers and found");
        return -1;
    }
    if (!take_hold(&batch->features, given[1], 2, 0) || !(holds(&batch->features, 'd') || holds(&batch->features, 'f')))
        return 0;
    batch->samples = batch->features.view.shape[0];
    batch->dimensions = batch->features.view.shape[1];
    if (batch->samples == 0)
        return 0;
    if (!hold_doubles(&batch->numbers, given[0], 1, 0) || !hold_doubles(&batch->answers, given[3], 2, PyBUF_WRITABLE) ||
        !hold_doubles(&batch->found, given[4], 2, PyBUF_WRITABLE) || batch->answers.view.shape[0] != batch->samples ||
        batch->found.view.shape[0] != columns || batch->found.view.shape[1] != batch->samples) {
        PyErr_SetString(PyExc_ValueError, "plan, answers and found must be arrays of doubles that fit the features");
        return -1;
    }
    batch->plan = batch->numbers.view.buf;
    batch->size = batch->numbers.view.shape[0];
    batch->classes = batch->answers.view.shape[1];
    return 1;
}

static void read_row(double *row, const Batch *batch, Py_ssize_t sample)
{
    Py_ssize_t dimensions = batch->dimensions;
    if (holds(&batch->features, 'f')) {
        const float *from = (const float *)batch->features.view.buf + sample * dimensions;
        for (Py_ssize_t i = 0; i < dimensions; i++)
            row[i] = from[i];
    } else {
        memcpy(row, (const double *)batch->features.view.buf + sample * dimensions, dimensions * sizeof(double));
    }
}

#endif
