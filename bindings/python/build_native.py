"""The extension cbt._native, in the API mode of cffi: the C compiler checks every declaration, which
are those of the engine's own headers."""

import os
import pathlib
import re

import cffi

HEADERS = ("base", "cursor", "map", "chain", "tracker", "wire", "stream", "server", "client", "arrow")

# What cffi's parser knows of C: no preprocessor, no attributes.
NOISE = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n\\]|\\\n|\\.)*$|\bCBT_API\b|\bCBT_NOTHROW\b", re.DOTALL | re.MULTILINE)


def declarations(folder):
    text = ""
    for name in HEADERS:
        header = (folder / f"cbt/c/{name}.h").read_text(encoding="utf-8")
        # The parts for C++, with the braces of extern "C".
        header = re.sub(r"#ifdef __cplusplus\n.*?#endif", "", header, flags=re.DOTALL)
        text += NOISE.sub("", header)
    return text


# Python's side of callbacks. It returns 1 + a code: when Python could not run it, as in a process
# that ends, 0 arrives here, which must not look like success.
CALLBACKS = """
extern "Python" int cbt_py_seek(uintptr_t, uint64_t, cbt_error**);
extern "Python" int cbt_py_next(uintptr_t, uint64_t*, uint64_t*, uint64_t, uint64_t*, uint64_t*, cbt_error**);
extern "Python" int cbt_py_open(uintptr_t, const cbt_request*, cbt_answer*, cbt_error**);
extern "Python" void cbt_py_release(uintptr_t);

void cbt_py_fill_callbacks(cbt_cursor_callbacks*, uintptr_t);
void cbt_py_fill_provider(cbt_provider*, uintptr_t);
cbt_code cbt_py_own(const void*, uint64_t, uintptr_t, cbt_bytes**, cbt_error**);
cbt_code cbt_py_read(cbt_cursor*, void*, uint64_t, cbt_batch*, cbt_error**);
struct ArrowArrayStream* cbt_py_new_arrow(void);
void* cbt_py_arrow_destructor(void);
"""

SOURCE = r"""
#include <stdlib.h>
#include <cbt/c/cbt.h>

static int cbt_py_seek(uintptr_t, uint64_t, cbt_error**);
static int cbt_py_next(uintptr_t, uint64_t*, uint64_t*, uint64_t, uint64_t*, uint64_t*, cbt_error**);
static int cbt_py_open(uintptr_t, const cbt_request*, cbt_answer*, cbt_error**);
static void cbt_py_release(uintptr_t);

static cbt_code code_of(int returned, cbt_error** error) {
  static const char gone[] = "Python could not run the callback";
  if (returned > 0) return returned - 1;
  if (*error == NULL) *error = cbt_error_new(CBT_INTERNAL, gone, sizeof(gone) - 1);
  return CBT_INTERNAL;
}

static cbt_code seek(void* user, uint64_t offset, cbt_error** error) {
  return code_of(cbt_py_seek((uintptr_t)user, offset, error), error);
}

static cbt_code next(void* user, uint64_t* offsets, uint64_t* lengths, uint64_t room,
                     uint64_t* count, uint64_t* covered, cbt_error** error) {
  return code_of(cbt_py_next((uintptr_t)user, offsets, lengths, room, count, covered, error), error);
}

static cbt_code open_source(void* user, const cbt_request* request, cbt_answer* answer,
                            cbt_error** error) {
  return code_of(cbt_py_open((uintptr_t)user, request, answer, error), error);
}

/* Also runs while an exception is on its way, and after the interpreter has ended. */
static void release_user(void* user) {
  PyObject *type, *value, *trace;
  PyGILState_STATE state;
  if (!Py_IsInitialized()) return;
  state = PyGILState_Ensure();
  PyErr_Fetch(&type, &value, &trace);
  cbt_py_release((uintptr_t)user);
  PyErr_Restore(type, value, trace);
  PyGILState_Release(state);
}

static void cbt_py_fill_callbacks(cbt_cursor_callbacks* callbacks, uintptr_t user) {
  callbacks->struct_size = sizeof(*callbacks);
  callbacks->user = (void*)user;
  callbacks->seek = seek;
  callbacks->next = next;
  callbacks->release = release_user;
}

static void cbt_py_fill_provider(cbt_provider* provider, uintptr_t user) {
  provider->struct_size = sizeof(*provider);
  provider->user = (void*)user;
  provider->open = open_source;
  provider->release = release_user;
}

static cbt_code cbt_py_own(const void* data, uint64_t size, uintptr_t user, cbt_bytes** bytes,
                           cbt_error** error) {
  return cbt_bytes_own(data, size, (void*)user, release_user, bytes, error);
}

/* Offsets, then lengths. */
static cbt_code cbt_py_read(cbt_cursor* cursor, void* numbers, uint64_t room, cbt_batch* batch,
                            cbt_error** error) {
  return cbt_cursor_read(cursor, (uint64_t*)numbers, (uint64_t*)numbers + room, room, batch, error);
}

static struct ArrowArrayStream* cbt_py_new_arrow(void) {
  return (struct ArrowArrayStream*)calloc(1, sizeof(struct ArrowArrayStream));
}

/* A stream that was imported has no release any more. */
static void destroy_arrow(PyObject* capsule) {
  struct ArrowArrayStream* const stream =
      (struct ArrowArrayStream*)PyCapsule_GetPointer(capsule, "arrow_array_stream");
  if (stream == NULL) {
    PyErr_WriteUnraisable(capsule);
    return;
  }
  if (stream->release != NULL) stream->release(stream);
  free(stream);
}

static void* cbt_py_arrow_destructor(void) { return (void*)destroy_arrow; }
"""


def make():
    builder = cffi.FFI()
    include = os.environ["CBT_INCLUDE"].split(os.pathsep)
    folder = next(pathlib.Path(folder) for folder in [*include, "/usr/include", "/usr/local/include"]
                  if pathlib.Path(folder, "cbt/c/cbt.h").is_file())
    builder.cdef(declarations(folder))
    builder.cdef(CALLBACKS)
    builder.set_source("cbt._native", SOURCE, include_dirs=include,
                       extra_link_args=os.environ["CBT_LINK_ARGUMENTS"].split("\n"))
    return builder


builder = make()
