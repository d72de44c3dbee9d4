// One engine, several threads, each with a request of its own; the forwards are shared. Another request has three
// answers to one prompt, and one is cancelled: adze-example-threads MODEL
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "adze/adze.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s MODEL\n", argv[0]);
    return 2;
  }
  auto engine = adze::Engine::load(argv[1], {});
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().message.c_str());
    return 1;
  }
  const auto request = [&](const std::string& text) {
    adze::Request made;
    made.prompt = engine->tokenize(text, engine->adds_bos(), false).value();
    made.options = engine->default_options();
    made.options.max_tokens = 24;
    made.options.sampling.seed = 7;
    return made;
  };

  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    threads.emplace_back([&, i] {
      // Each thread waits for its own answer; whichever waits makes the steps for all.
      auto answer = engine->submit(request("The number " + std::to_string(i)));
      if (answer) texts[i] = answer->wait().map([](const adze::Generation& g) { return g.text; }).value_or("failed");
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) std::printf("- %s\n", text.c_str());

  // The prompt is computed once; the seeds are 7, 8 and 9.
  auto copies = engine->submit_copies(request("The river"), 3);
  if (!copies) return 1;
  copies->at(2).cancel();
  for (adze::Answer& copy : *copies) {
    const auto whole = copy.wait();
    if (!whole) return 1;
    std::printf("* seed %llu, %s: %s\n", static_cast<unsigned long long>(whole->seed),
                std::string(adze::finish_reason_name(whole->finish)).c_str(), whole->text.c_str());
  }

  const adze::EngineStatistics statistics = engine->statistics();
  std::printf("%lld steps, %lld of %lld lookups found a beginning, %lld pages in use\n",
              static_cast<long long>(statistics.steps), static_cast<long long>(statistics.prefix_hits),
              static_cast<long long>(statistics.prefix_lookups), static_cast<long long>(statistics.pages_in_use));
  return statistics.pages_in_use == 0 ? 0 : 1;
}
