/* The end of a compiled method: the module, and its one function.

    walk(plan, features, memory, answers, found) -> memory

features are (samples, dimensions), float or double; answers (samples, classes) and found (columns of the trace, samples)
are doubles to be written; memory is a tuple of floats; plan, (numbers,) doubles, is all that stays the same for a client,
as the method says. None, and nothing is changed, where the features are no such array or not finite: the caller then says
what is wrong with them.

Included after what the method defines: Plan, with the size of its work array; MEMORY and FOUND, how many numbers each
has; read_plan, which finds the parts of the plan; and answer, which answers the sample in row and puts what it found into
found, each number (samples) further than the one before. */

enum { MANY = 256 }; /* from so many samples on, other threads of Python may run meanwhile */

/* Answer all samples; 0 and nothing is done if one is not finite, or too long to compute with. */
static int answer_all(const Batch *batch, Plan *plan, double *row, double *memory)
{
    for (Py_ssize_t sample = 0; sample < batch->samples; sample++) {
        read_row(row, batch, sample);
        if (!isfinite(dot(row, row, batch->dimensions)))
            return 0;
    }
    for (Py_ssize_t sample = 0; sample < batch->samples; sample++) {
        if (batch->samples > 1)
            read_row(row, batch, sample);
        answer(plan, row, row + batch->dimensions, memory, (double *)batch->answers.view.buf + sample * batch->classes,
               (double *)batch->found.view.buf + sample, batch->samples);
    }
    return 1;
}

static PyObject *walk_over(const Batch *batch, Plan *plan, PyObject *before)
{
    double memory[MEMORY], *row;
    int done;
    if (!read_floats(before, MEMORY, memory))
        return NULL;
    row = malloc((size_t)(batch->dimensions + plan->work) * sizeof(double));
    if (row == NULL)
        return PyErr_NoMemory();
    PyThreadState *thread = batch->samples < MANY ? NULL : PyEval_SaveThread();
    done = answer_all(batch, plan, row, memory);
    if (thread != NULL)
        PyEval_RestoreThread(thread);
    free(row);
    if (!done)
        Py_RETURN_NONE;
    PyObject *after = PyTuple_New(MEMORY);
    for (Py_ssize_t i = 0; after != NULL && i < MEMORY; i++)
        PyTuple_SetItem(after, i, PyFloat_FromDouble(memory[i]));
    return after;
}

static PyObject *walk(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
    Batch batch;
    Plan plan;
    PyObject *result = NULL;
    int is_ours = open_batch(&batch, given, count, FOUND);
    (void)module;
    if (is_ours == 1 && read_plan(&plan, &batch))
        result = walk_over(&batch, &plan, given[2]);
    else if (is_ours >= 0)
        result = Py_NewRef(Py_None);
    close_batch(&batch);
    return result;
}

static PyMethodDef functions[] = {
    {"walk", (PyCFunction)(void (*)(void))walk, METH_FASTCALL, "Answer samples one after the other."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_compiled", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__compiled(void)
{
    return PyModuleDef_Init(&definition);
}
