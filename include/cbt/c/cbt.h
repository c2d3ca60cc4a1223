// The C interface of libcbt, for C11 and for languages that call C: one library, libcbt.so.1, whose
// binary interface only grows.
//
//   cc plugin.c $(pkg-config --cflags --libs cbt-c)
//
// base.h says what holds for every function; docs/tutorials/from-c.md begins from nothing.
#ifndef CBT_C_CBT_H_
#define CBT_C_CBT_H_

#include "cbt/c/arrow.h"    // IWYU pragma: export
#include "cbt/c/base.h"     // IWYU pragma: export
#include "cbt/c/chain.h"    // IWYU pragma: export
#include "cbt/c/client.h"   // IWYU pragma: export
#include "cbt/c/cursor.h"   // IWYU pragma: export
#include "cbt/c/have.h"     // IWYU pragma: export
#include "cbt/c/map.h"      // IWYU pragma: export
#include "cbt/c/server.h"   // IWYU pragma: export
#include "cbt/c/stream.h"   // IWYU pragma: export
#include "cbt/c/tracker.h"  // IWYU pragma: export
#include "cbt/c/wire.h"     // IWYU pragma: export

#endif  // CBT_C_CBT_H_
