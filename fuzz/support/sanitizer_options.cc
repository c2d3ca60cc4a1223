// Fuzzers allocate and free all the time: the address sanitizer's quarantine of 256 MiB exceeds any
// cache, and thirty frames per allocation are not needed. ASAN_OPTIONS overrides these.
extern "C" const char* __asan_default_options();

extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=8:malloc_context_size=8";
}
