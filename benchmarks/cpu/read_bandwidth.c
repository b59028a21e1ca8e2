// How fast this machine reads memory right now: N threads, each its own slice, huge pages, no writes.
// usage: read_bandwidth THREADS [MIB=512] [REPEATS=7]   prints the median and the best in bytes per second.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef uint64_t Half __attribute__((vector_size(32)));  // half a cache line, one register

typedef struct {
  const char* begin;
  size_t bytes;
} Slice;

static pthread_barrier_t start_line, finish_line;
static int repeats;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t read_all(const Slice* slice) {
  Half sums[8] = {{0}};
  const Half* lines = (const Half*)slice->begin;
  for (size_t i = 0; i + 8 <= slice->bytes / sizeof(Half); i += 8)
    for (int j = 0; j < 8; ++j) sums[j] |= lines[i + (size_t)j];
  uint64_t all = 0;
  for (int j = 0; j < 8; ++j)
    for (int k = 0; k < 4; ++k) all |= sums[j][k];
  return all;
}

static void* worker(void* argument) {
  volatile uint64_t sink = 0;
  for (int i = 0; i < repeats; ++i) {
    pthread_barrier_wait(&start_line);
    sink |= read_all(argument);
    pthread_barrier_wait(&finish_line);
  }
  return NULL;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  const int threads = argc > 1 ? atoi(argv[1]) : 1;
  const size_t bytes = (size_t)(argc > 2 ? atoi(argv[2]) : 512) << 20;
  repeats = argc > 3 ? atoi(argv[3]) : 7;
  if (threads < 1 || threads > 256 || repeats < 1) return 64;
  char* data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return 1;
  madvise(data, bytes, MADV_HUGEPAGE);
  memset(data, 1, bytes);
  pthread_barrier_init(&start_line, NULL, (unsigned)threads + 1);
  pthread_barrier_init(&finish_line, NULL, (unsigned)threads + 1);
  pthread_t* ids = calloc((size_t)threads, sizeof *ids);
  Slice* slices = calloc((size_t)threads, sizeof *slices);
  double* seconds = calloc((size_t)repeats, sizeof *seconds);
  for (int i = 0; i < threads; ++i) {
    const size_t part = bytes / (size_t)threads / 4096 * 4096;
    slices[i] = (Slice){data + part * (size_t)i, part};
    pthread_create(&ids[i], NULL, worker, &slices[i]);
  }
  for (int i = 0; i < repeats; ++i) {
    pthread_barrier_wait(&start_line);
    const double begin = now();
    pthread_barrier_wait(&finish_line);
    seconds[i] = now() - begin;
  }
  for (int i = 0; i < threads; ++i) pthread_join(ids[i], NULL);
  qsort(seconds, (size_t)repeats, sizeof *seconds, ascending);
  printf("{\"median\": %.0f, \"best\": %.0f}\n", (double)bytes / seconds[repeats / 2], (double)bytes / seconds[0]);
  return 0;
}
