/* Errors of other libraries, as the loops of nccl.c and train*.c return them. NCCL and cuBLAS have a range of negative
 * numbers each: the base minus the library's own number. `native/nccl_errors.py` has their texts. */
#ifndef RAILWRIGHT_NCCL_ERRORS_H
#define RAILWRIGHT_NCCL_ERRORS_H

enum { RW_OTHER_RANK_FAILED = -1020, RW_MPI_ERROR = -1021, RW_NCCL_ERROR = -2000, RW_CUBLAS_ERROR = -2100 };

#endif
