// How fast the packed linear layers read weights (one row) and multiply (many rows), beside the rate at which this
// machine reads memory in the same run. Prints one line of JSON per figure; exits 1 if a result is wrong.
//
//   linear_bench [--isa portable|avx2|avx512] [--threads N] [--digits 1|2|3] [--quick]
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backend/cpu/linear.h"

namespace coreai::cpu {
namespace {

struct Options {
  Isa isa = detect_isa();
  int threads = 1;
  Digits digits = Digits::kFaithful;
  bool quick = false;
};

// Memory in huge pages, as the cache of packed weights is read.
class HugeBuffer {
 public:
  explicit HugeBuffer(std::size_t size) : size_((size + kHuge - 1) / kHuge * kHuge) {
    base_ = mmap(nullptr, size_ + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) std::abort();
    const auto address = (reinterpret_cast<std::uintptr_t>(base_) + kHuge - 1) / kHuge * kHuge;
    data_ = reinterpret_cast<std::byte*>(address);
    madvise(data_, size_, MADV_HUGEPAGE);
    std::memset(data_, 0, size_);
  }
  ~HugeBuffer() { munmap(base_, size_ + kHuge); }
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;
  std::byte* data() { return data_; }

 private:
  static constexpr std::size_t kHuge = std::size_t{2} << 20;
  std::size_t size_;
  void* base_ = nullptr;
  std::byte* data_ = nullptr;
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of the fastest and the median of `repeats` runs of work(thread), all threads starting together.
struct Timing {
  double best, median;
};
Timing measure(int threads, int repeats, const std::function<void(int)>& work) {
  std::vector<double> seconds;
  for (int r = 0; r < repeats + 1; ++r) {
    std::atomic<int> ready{0};
    std::vector<std::thread> others;
    const auto arrive = [&] {
      ready.fetch_add(1);
      while (ready.load() < threads) {
      }
    };
    for (int t = 1; t < threads; ++t) {
      others.emplace_back([&, t] {
        arrive();
        work(t);
      });
    }
    arrive();
    const double begin = now();
    work(0);
    for (std::thread& t : others) t.join();
    if (r > 0) seconds.push_back(now() - begin);  // the first run warms up
  }
  std::ranges::sort(seconds);
  return {seconds.front(), seconds[seconds.size() / 2]};
}

struct Shape {
  const char* name;
  DType dtype;
  std::int64_t n, k;
  bool gate_up;
};

// Random weights of one layer, Q4_1 (scale and offset) or si8 with a scale, in blocks of 32.
struct Layer {
  Layer(const Shape& shape, unsigned seed) : n(shape.gate_up ? 2 * shape.n : shape.n), k(shape.k) {
    std::mt19937 random(seed);
    const bool nibbles = shape.dtype == DType::kUI4;
    data.resize(static_cast<std::size_t>(nibbles ? n * k / 2 : n * k));
    for (std::byte& b : data) b = static_cast<std::byte>(random());
    scale.resize(static_cast<std::size_t>(n * k / 32));
    offset.resize(nibbles ? scale.size() : 0);
    // f16 values in 2^-7..2^-6 and -2^-4..-2^-3
    for (auto& s : scale) s = static_cast<std::uint16_t>(0x2000 + random() % 1024);
    for (auto& o : offset) o = static_cast<std::uint16_t>(0xac00 + random() % 1024);
    source = {.dtype = shape.dtype,
              .data = data,
              .n = n,
              .k = k,
              .block = 32,
              .scale_dtype = DType::kF16,
              .scale = std::as_bytes(std::span(scale)),
              .offset2_dtype = DType::kF16,
              .offset2 = std::as_bytes(std::span(offset))};
  }
  std::int64_t n, k;
  std::vector<std::byte> data;
  std::vector<std::uint16_t> scale, offset;
  MatrixSource source;
};

std::vector<float> random_rows(std::int64_t m, std::int64_t k) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(m * k));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = normal(random) * (i % 97 == 96 ? 12.0f : 1.0f);
  return x;
}

struct Job {
  PackedMatrix matrix;
  LinearArgs args;
  std::vector<std::byte> digits;
  std::vector<float> y;

  void set_rows(const std::vector<float>& x, std::int64_t m, const Options& o) {
    const std::size_t row = activation_row_bytes(matrix.k(), o.digits, o.isa);
    digits.resize(row * static_cast<std::size_t>(m) + kPackAlignment);
    auto address = (reinterpret_cast<std::uintptr_t>(digits.data()) + kPackAlignment - 1) / kPackAlignment;
    auto* out = reinterpret_cast<std::byte*>(address * kPackAlignment);
    quantize_rows(x.data(), matrix.k(), matrix.k(), 0, m, o.digits, o.isa, out);
    y.resize(static_cast<std::size_t>(m * matrix.outputs()));
    args = {.weights = &matrix,
            .m = m,
            .digits = out,
            .y = y.data(),
            .y_stride = matrix.outputs(),
            .activation = matrix.gate_up() ? Activation::kSilu : Activation::kIdentity,
            .precision = o.digits,
            .isa = o.isa};
  }
  void run(int thread, int threads) const {
    linear_chunk(args, matrix.units() * thread / threads, matrix.units() * (thread + 1) / threads);
  }
};

// Relative L2 error of some rows and columns against a double loop.
double error_of(const Job& job, const Layer& layer, const std::vector<float>& x) {
  std::vector<float> row(static_cast<std::size_t>(layer.k));
  std::vector<float> up(static_cast<std::size_t>(layer.k));
  double error = 0;
  double norm = 0;
  const std::int64_t outputs = job.matrix.outputs();
  for (std::int64_t c = 0; c < outputs; c += std::max<std::int64_t>(1, outputs / 61)) {
    dequantize_row(layer.source, c, row.data());
    if (job.matrix.gate_up()) dequantize_row(layer.source, outputs + c, up.data());
    for (std::int64_t r = 0; r < job.args.m; r += 9) {
      double g = 0;
      double u = 0;
      for (std::int64_t i = 0; i < layer.k; ++i) {
        const double value = x[r * layer.k + i];
        g += value * static_cast<double>(row[i]);
        u += value * static_cast<double>(up[i]);
      }
      const double expected = job.matrix.gate_up() ? g / (1 + std::exp(-g)) * u : g;
      error += std::pow(job.y[r * outputs + c] - expected, 2);
      norm += expected * expected;
    }
  }
  return std::sqrt(error / norm);
}

// Sums a part of the memory; `ahead` bytes are prefetched, as the better of the two is the machine's rate.
std::uint64_t read_part(const std::byte* data, std::size_t size, std::size_t ahead) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(data);
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i + 8 <= size / 8; i += 8) {
    if (ahead != 0) __builtin_prefetch(data + i * 8 + ahead);
    for (int j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t s : sums) total += s;
  return total;
}

double read_rate(const std::byte* data, std::size_t size, int threads, int repeats) {
  std::atomic<std::uint64_t> sink{0};
  double best = 0;
  for (const std::size_t ahead : {0, 4096}) {
    const Timing t = measure(threads, repeats, [&](int thread) {
      const std::size_t part = size / threads / 64 * 64;
      sink += read_part(data + part * thread, part, ahead);
    });
    best = std::max(best, static_cast<double>(size) / t.best / 1e9);
  }
  return best;
}

constexpr Shape kShapes[] = {
    {"attention_output", DType::kUI4, 576, 576, false},
    {"key_value", DType::kUI4, 192, 576, false},
    {"query_key_value", DType::kUI4, 960, 576, false},
    {"gate_up", DType::kUI4, 1536, 576, true},
    {"down", DType::kUI4, 576, 1536, false},
    {"head", DType::kSI8, 49152, 576, false},
};
constexpr double kErrors[] = {0, 3e-2, 2e-4, 1e-6};  // by digits; gate_up multiplies two results

int bench_shape(const Shape& shape, const Options& o) {
  const Layer layer(shape, 1);
  const PackPlan plan({layer.source}, {.gate_up = shape.gate_up});
  const std::size_t stride = (plan.size() + 4095) / 4096 * 4096;
  const std::size_t total = std::size_t{o.quick ? 64u : 320u} << 20;
  const std::size_t copies = std::max<std::size_t>(1, total / stride);
  HugeBuffer memory(stride * copies);
  pack(plan, memory.data());
  for (std::size_t c = 1; c < copies; ++c) std::memcpy(memory.data() + c * stride, memory.data(), plan.size());

  const auto x = random_rows(128, shape.k);
  std::vector<Job> jobs(copies);
  for (std::size_t c = 0; c < copies; ++c) {
    jobs[c].matrix = PackedMatrix::view({memory.data() + c * stride, plan.size()}, "benchmark");
    jobs[c].set_rows(x, 1, o);
  }
  jobs.front().run(0, 1);
  int failures = 0;
  const double decode_error = error_of(jobs.front(), layer, x);
  const int repeats = o.quick ? 3 : 9;
  const Timing decode = measure(o.threads, repeats, [&](int t) {
    for (const Job& job : jobs) job.run(t, o.threads);
  });
  const Timing cached = measure(o.threads, repeats, [&](int t) {
    for (std::size_t c = 0; c < copies; ++c) jobs.front().run(t, o.threads);
  });
  const double rate = read_rate(memory.data(), stride * copies, o.threads, repeats);
  const double bytes = static_cast<double>(plan.size()) * static_cast<double>(copies);
  std::printf(
      "{\"benchmark\": \"linear_decode\", \"shape\": \"%s\", \"isa\": \"%s\", \"digits\": %d, \"threads\": %d, "
      "\"gb_per_s\": %.2f, \"median_gb_per_s\": %.2f, \"in_cache_gb_per_s\": %.2f, \"read_gb_per_s\": %.2f, "
      "\"share\": %.3f, \"error\": %.2g}\n",
      shape.name, std::string(isa_name(o.isa)).c_str(), static_cast<int>(o.digits), o.threads,
      bytes / decode.best / 1e9, bytes / decode.median / 1e9, bytes / cached.best / 1e9, rate,
      bytes / decode.best / 1e9 / rate, decode_error);
  if (!(decode_error < kErrors[static_cast<int>(o.digits)])) ++failures;

  Job& job = jobs.front();
  job.set_rows(x, 128, o);
  job.run(0, 1);
  const double prefill_error = error_of(job, layer, x);
  const int loops = shape.n > 10000 ? 1 : 4;
  const Timing prefill = measure(o.threads, repeats, [&](int t) {
    for (int i = 0; i < loops; ++i) job.run(t, o.threads);
  });
  const double flops = 2.0 * 128 * static_cast<double>(layer.n * layer.k) * loops;
  std::printf(
      "{\"benchmark\": \"linear_prefill_128\", \"shape\": \"%s\", \"isa\": \"%s\", \"digits\": %d, \"threads\": %d, "
      "\"gflop_per_s\": %.1f, \"median_gflop_per_s\": %.1f, \"error\": %.2g}\n",
      shape.name, std::string(isa_name(o.isa)).c_str(), static_cast<int>(o.digits), o.threads,
      flops / prefill.best / 1e9, flops / prefill.median / 1e9, prefill_error);
  if (!(prefill_error < kErrors[static_cast<int>(o.digits)])) ++failures;
  std::fflush(stdout);
  return failures;
}

int usage() {
  std::fprintf(
      stderr,
      "usage: linear_bench [--isa portable|avx2|avx512] [--threads N] [--digits 1|2|3] [--quick] [--shape NAME]\n");
  return 64;
}

int run(int argc, char** argv) {
  Options o;
  std::string_view only;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--quick") {
      o.quick = true;
      continue;
    }
    if (i + 1 == argc) return usage();
    const std::string_view value = argv[++i];
    if (name == "--isa" && isa_from_name(value)) {
      o.isa = *isa_from_name(value);
    } else if (name == "--threads" && std::atoi(argv[i]) > 0) {
      o.threads = std::atoi(argv[i]);
    } else if (name == "--digits" && value >= "1" && value <= "3" && value.size() == 1) {
      o.digits = static_cast<Digits>(value[0] - '0');
    } else if (name == "--shape") {
      only = value;
    } else {
      return usage();
    }
  }
  if (!isa_supported(o.isa)) {
    std::fprintf(stderr, "this CPU does not run %s kernels: nothing measured\n", std::string(isa_name(o.isa)).c_str());
    return 0;
  }
  int failures = 0;
  for (const Shape& shape : kShapes) {
    if (only.empty() || only == shape.name) failures += bench_shape(shape, o);
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace coreai::cpu

int main(int argc, char** argv) {
  return coreai::cpu::run(argc, argv);
}
