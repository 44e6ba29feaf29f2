/* Products of other libraries, beside ours in the same run: OpenBLAS (cblas_sgemm) and oneDNN (dnnl_sgemm) where the machine has them. They are
   loaded when the program runs, so that it needs neither to be built. */
#ifndef BENCH_LIBRARIES_H
#define BENCH_LIBRARIES_H

#include <dlfcn.h>

typedef void (*cblas_product)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                              int ldb, float beta, float *c, int ldc);
typedef int (*dnnl_product)(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                            const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

enum { LIBRARY_OPENBLAS, LIBRARY_ONEDNN, LIBRARIES };
static const char *const library_names[LIBRARIES] = { "openblas", "onednn" };

typedef struct libraries { cblas_product openblas; dnnl_product onednn; } libraries;

/* C guarantees no conversion of a data pointer to a function's; POSIX does. */
static void library_symbol(void *library, const char *name, void *function) {
    void *symbol = library != NULL ? dlsym(library, name) : NULL;
    memcpy(function, &symbol, sizeof symbol);
}

static void *library_open(const char *const *names) {
    void *library = NULL;
    for (; *names != NULL && library == NULL; names++) library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* Threads: OpenBLAS is told; oneDNN goes by OMP_NUM_THREADS, which is set before it is loaded. */
static void libraries_open(libraries *l, int threads) {
    static const char *const openblas[] = { "libopenblas.so.0", "libopenblas.so", NULL };
    static const char *const onednn[] = { "libdnnl.so.3", "libdnnl.so.2", "libdnnl.so", NULL };
    char text[16];
    void *library;
    void (*set_threads)(int);
    snprintf(text, sizeof text, "%d", threads);
    setenv("OMP_NUM_THREADS", text, 1);
    library = library_open(openblas);
    library_symbol(library, "cblas_sgemm", &l->openblas);
    library_symbol(library, "openblas_set_num_threads", &set_threads);
    if (set_threads != NULL) set_threads(threads);
    library_symbol(library_open(onednn), "dnnl_sgemm", &l->onednn);
}

static int library_has(const libraries *l, int which) { return which == LIBRARY_OPENBLAS ? l->openblas != NULL : l->onednn != NULL; }

/* Row-major C[m][n] = A B (+ C where `add`), A[m][k], or [k][m] where transposed, B[k][n], or [n][k] where transposed. */
static void library_run(const libraries *l, int which, int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k, const float *a,
                        const float *b, int add, float *c) {
    const int64_t lda = transpose_a ? m : k, ldb = transpose_b ? k : n;
    if (which == LIBRARY_OPENBLAS)
        l->openblas(101, transpose_a ? 112 : 111, transpose_b ? 112 : 111, (int)m, (int)n, (int)k, 1, a, (int)lda, b, (int)ldb, add ? 1.0f : 0.0f, c,
                    (int)n); /* CblasRowMajor, CblasTrans, CblasNoTrans */
    else
        (void)l->onednn(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, 1, a, lda, b, ldb, add ? 1.0f : 0.0f, c, n);
}

#endif
