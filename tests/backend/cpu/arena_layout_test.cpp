#include "backend/cpu/arena_layout.h"

#include <gtest/gtest.h>

#include <random>

namespace coreai::cpu {
namespace {

using Sizes = std::vector<std::size_t>;

void expect_no_overlap(const ArenaLayout& layout, const std::vector<Lifetime>& lives, const Sizes& sizes) {
  for (std::size_t a = 0; a < lives.size(); ++a) {
    if (lives[a].first < 0) continue;
    EXPECT_LE(layout.offset(a) + sizes[a], layout.bytes());
    EXPECT_EQ(layout.offset(a) % 64, 0u);
    for (std::size_t b = 0; b < a; ++b) {
      if (lives[b].first < 0 || lives[a].first > lives[b].last || lives[b].first > lives[a].last) continue;
      EXPECT_TRUE(layout.offset(a) + sizes[a] <= layout.offset(b) || layout.offset(b) + sizes[b] <= layout.offset(a))
          << a << " and " << b;
    }
  }
}

TEST(ArenaLayout, BuffersThatLiveTogetherNeverOverlap) {
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> lives(1 + below(40));
    Sizes sizes(lives.size());
    for (std::size_t i = 0; i < lives.size(); ++i) {
      const int first = static_cast<int>(below(30));
      if (below(10) > 0) lives[i] = {first, first + static_cast<int>(below(8))};
      sizes[i] = below(5) == 0 ? below(100) : below(1 << 20);
    }
    ArenaLayout layout(lives);
    for (int call = 0; call < 3; ++call) {
      layout.place(sizes);
      expect_no_overlap(layout, lives, sizes);
      for (std::size_t& s : sizes) s += below(3) == 0 ? below(5000) : 0;
    }
  }
}

// A chain of layers with a residual that lives across each: the live set is one residual and two neighbours.
TEST(ArenaLayout, AChainNeedsLittleMoreThanWhatLives) {
  std::vector<Lifetime> lives;
  Sizes sizes;
  for (int layer = 0; layer < 20; ++layer) {
    const int step = 4 * layer;
    for (const auto& [first, last, bytes] : {std::tuple{step, step + 4, 300'000},
                                             {step + 1, step + 2, 900'000},
                                             {step + 2, step + 3, 1'200'000},
                                             {step + 3, step + 4, 300'000}}) {
      lives.push_back({first, last});
      sizes.push_back(static_cast<std::size_t>(bytes));
    }
  }
  ArenaLayout layout(lives);
  layout.place(sizes);
  expect_no_overlap(layout, lives, sizes);
  EXPECT_EQ(layout.largest_live_bytes(), 2'400'000u);
  EXPECT_LE(static_cast<double>(layout.bytes()), 1.2 * static_cast<double>(layout.largest_live_bytes()));
}

TEST(ArenaLayout, SmallerCallsMoveNothing) {
  ArenaLayout layout({{0, 1}, {1, 2}, {2, 3}, {}});
  layout.place(Sizes{1000, 2000, 500, 1 << 30});
  const Sizes before{layout.offset(0), layout.offset(1), layout.offset(2)};
  const std::size_t bytes = layout.bytes();
  layout.place(Sizes{1, 2000, 0, 5});
  EXPECT_EQ((Sizes{layout.offset(0), layout.offset(1), layout.offset(2)}), before);
  EXPECT_EQ(layout.bytes(), bytes);
  EXPECT_LT(bytes, 4000u);  // the last buffer lives nowhere
  layout.place(Sizes{9000, 2000, 500, 0});
  EXPECT_GE(layout.bytes(), 11'000u);
}

}  // namespace
}  // namespace coreai::cpu
