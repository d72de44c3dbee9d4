#include "tune/kernel_bench.hpp"

#include <gtest/gtest.h>

namespace adze::tune {
namespace {

using tensor::DType;

TEST(KernelBench, ProductsOfEveryWeightTypeThatAdzeWrites) {
  for (const tensor::DTypeInfo& info : tensor::all_dtypes()) {
    const auto bench = KernelBench::products(info.type, {.threads = 1}, 1);
    if (info.quantise == nullptr) {
      ASSERT_FALSE(bench) << info.name;
      EXPECT_EQ(bench.error().code, ErrorCode::unsupported_type);
      continue;
    }
    ASSERT_TRUE(bench) << info.name << ": " << bench.error().message;
    EXPECT_FALSE(bench->kernel().empty()) << info.name;
    const double weights = static_cast<double>(KernelBench::kWidth) * KernelBench::kWidth;
    const double head = 16.0 * KernelBench::kWidth;  // of every row, in float32
    const ops::Work work = bench->work(3);
    const bool bytes = tensor::is_block_type(info.type);
    EXPECT_EQ(work.byte_products, bytes ? 3 * weights : 0) << info.name;
    EXPECT_EQ(work.float_products, 3 * head + (bytes ? 0 : 3 * weights)) << info.name;
    EXPECT_EQ(work.cache_bytes, 0);
  }
}

TEST(KernelBench, TimesAreAboveNothing) {
  auto bench = KernelBench::products(DType::q4_0, {.threads = 2, .pack_in_memory = true}, 2).value();
  const Result<double> seconds = bench.seconds(2);
  ASSERT_TRUE(seconds) << seconds.error().message;
  EXPECT_GT(*seconds, 0);
}

TEST(KernelBench, UnknownKernelSet) {
  EXPECT_EQ(KernelBench::products(DType::q4_0, {.kernel_set = "mmx"}).error().code, ErrorCode::invalid_argument);
}

TEST(KernelBench, AttentionReadsItsPositions) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "under AddressSanitizer: 40 s to fill a cache of this depth";
#endif
  auto bench = KernelBench::attention({.kv_type = backend::KvType::f16, .threads = 2}).value();
  const double position = 2.0 * KernelBench::kKvHeads * KernelBench::kHeadSize * 2 * KernelBench::kLayers;
  EXPECT_NEAR(bench.work(1).cache_bytes, (KernelBench::kDepth + 1) * position, position);
  EXPECT_GT(bench.seconds(1).value(), 0);
}

}  // namespace
}  // namespace adze::tune
