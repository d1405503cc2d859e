// Mistakes that the sanitizers must report, as functions of SQL. Before `--sanitize` says that
// there was no report, it has seen one of each of these (see mod.rs). Built with the handler's own
// flags.

#include <climits>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace
{
// The compiler must not see through the mistakes.
volatile size_t length = 16;
volatile int largest = INT_MAX;
}

extern "C"
{
char probe_read_init(void *, void *, char *) { return 0; }
char probe_copy_init(void *, void *, char *) { return 0; }
char probe_overflow_init(void *, void *, char *) { return 0; }

/// Code with checks reads past its memory.
long long probe_read(void *, void *, char *, char *)
{
  char *memory = static_cast<char *>(malloc(length));
  memset(memory, 1, length);
  long long past = memory[length];
  free(memory);
  return past;
}

/// Code without checks, as the engine is, has the C library copy past its memory.
__attribute__((no_sanitize("address", "undefined")))
long long probe_copy(void *, void *, char *, char *)
{
  char *memory = static_cast<char *>(malloc(length));
  char target[64];
  memcpy(target, memory, length + 1);
  long long copied = target[length];
  free(memory);
  return copied;
}

/// Arithmetic that C++ does not define.
long long probe_overflow(void *, void *, char *, char *) { return largest + 1; }
}
