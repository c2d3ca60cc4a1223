// Fuzzers allocate and free all the time: the address sanitizer's 256 MiB of memory that is not
// used again are more than any cache holds, and nobody reads thirty frames of each allocation.
// ASAN_OPTIONS has the last word.
extern "C" const char* __asan_default_options();

extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=8:malloc_context_size=8";
}
