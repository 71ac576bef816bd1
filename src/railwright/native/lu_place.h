/* A GPU's part of [A b], as `lu.c`, the kernels and `native/lu.py` see it: every member has 8 bytes. */
#ifndef RAILWRIGHT_LU_PLACE_H
#define RAILWRIGHT_LU_PLACE_H

enum { HEAD = 4 }; /* doubles before the rows of a message; also in `native/lu.py` */

struct rw_lu_place {
  double *a;                            /* column-major, `lead` rows apart */
  double *panels[2];                    /* of even and odd panels: the top block, its pivots, the rows below */
  double *message, *messages;           /* what this GPU tells about a column, and what all of its column tell */
  double *candidates;                   /* a value and a local row from each block of threads */
  long long *singular;                  /* 0, or the first column without a pivot, counted from 1 */
  long long lead, local_rows, local_columns; /* with b */
  long long order, block;
  long long rows, columns, row, column; /* the grid of GPUs, and the place of this one */
};

#endif
