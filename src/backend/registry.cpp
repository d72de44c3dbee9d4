// The one place that names backends.
#include "backend/backend.hpp"
#include "backend/cpu/cpu_backend.hpp"
#include "backend/cpu/cpu_features.hpp"
#include "backend/cpu/cpu_limits.hpp"
#include "backend/cpu/cpu_topology.hpp"
#include "backend/machine.hpp"

namespace adze::backend {

MemoryUse estimate_memory(const ops::Plan& plan, const PrepareOptions& options) {
  return cpu::estimate_memory(plan, options);
}

Result<std::unique_ptr<Prepared>> prepare(const ops::Plan& plan, const PrepareOptions& options) {
  return cpu::prepare(plan, options);
}

Machine describe_machine() {
  Machine machine;
  machine.backends.emplace_back("cpu");
  cpu::CpuDescription processor = cpu::describe_cpu();
  machine.processor = std::move(processor.model);
  machine.features = std::move(processor.features);
  for (const cpu::KernelTable* table : cpu::available_tables()) machine.kernel_sets.emplace_back(table->name);
  const cpu::CpuTopology topology = cpu::read_topology();
  machine.usable_cpus = cpu::usable_cpus(topology);
  machine.cores = topology.cores();
  machine.nodes = topology.nodes();
  cpu::ThreadChoice choice = cpu::choose_threads(topology);
  machine.threads = choice.threads;
  machine.threads_reason = std::move(choice.reason);
  return machine;
}

Result<std::string> choose_kernel_set(std::string_view forced) {
  ADZE_TRY(const cpu::KernelTable* table, cpu::choose_table(forced));
  return std::string(table->name);
}

Result<double> measure_read_rate(std::string_view kernel_set, int threads, std::uint64_t working_set) {
  ADZE_TRY(const cpu::KernelTable* table, cpu::choose_table(kernel_set));
  cpu::ThreadTeam team(threads, cpu::place_threads(cpu::read_topology(), threads));
  return cpu::measure_read_rate(*table, team, working_set);
}

Result<MultiplyRates> measure_multiply_rates(std::string_view kernel_set, int threads) {
  ADZE_TRY(const cpu::KernelTable* table, cpu::choose_table(kernel_set));
  cpu::ThreadTeam team(threads, cpu::place_threads(cpu::read_topology(), threads));
  return cpu::measure_multiply_rates(*table, team);
}

}  // namespace adze::backend
