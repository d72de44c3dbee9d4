#include "engine/desk.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "engine/policy.hpp"

namespace adze::engine {

Desk::Turn::Turn(const Desk& desk) : desk_(desk) {
  std::unique_lock lock(desk_.mutex_);
  ++desk_.turns_wanted_;
  desk_.changed_.wait(lock, [&] { return !desk_.busy_; });
  --desk_.turns_wanted_;
  desk_.busy_ = true;
}

Desk::Turn::~Turn() {
  const std::lock_guard lock(desk_.mutex_);
  desk_.busy_ = false;
  desk_.changed_.notify_all();
}

Result<std::vector<std::shared_ptr<Ticket>>> Desk::submit(std::vector<Order> orders) {
  const double now = host_.seconds();
  const std::lock_guard lock(mutex_);
  now_ = std::max(now_, now);
  const std::size_t waiting = waiting_ + inbox_.size();
  if (waiting + orders.size() > static_cast<std::size_t>(policy::kMaxWaiting)) {
    return fail(ErrorCode::limit_exceeded,
                fmt::format("{} requests wait already, and {} more are beyond the line of {}", waiting, orders.size(),
                            policy::kMaxWaiting),
                "ask again when some of them are answered");
  }
  std::vector<std::shared_ptr<Ticket>> tickets;
  RequestId first = 0;
  for (Order& order : orders) {
    order.spec.id = ++last_id_;
    if (!order.copy) first = order.spec.id;
    order.spec.sibling = order.copy ? first : 0;
    if (order.spec.start_by) *order.spec.start_by += now;
    if (order.spec.finish_by) *order.spec.finish_by += now;
    auto ticket = std::make_shared<Ticket>();
    ticket->id = order.spec.id;
    ticket->seed = order.seed;
    ticket->cancelled = std::move(order.cancelled);
    ticket->submitted = now;
    inbox_.push_back(std::move(order.spec));
    tickets_.push_back(ticket);
    tickets.push_back(std::move(ticket));
  }
  changed_.notify_all();
  return tickets;
}

void Desk::cancel(const Ticket& ticket) {
  const std::lock_guard lock(mutex_);
  if (!ticket.ended) cancels_.push_back(ticket.id);
}

bool Desk::next(Ticket& ticket, RequestEvent& event) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!ticket.events.empty()) {
      event = std::move(ticket.events.front());
      ticket.events.pop_front();
      return true;
    }
    if (ticket.ended) return false;
    if (ticket.cancelled) {
      lock.unlock();
      const bool stop = ticket.cancelled();
      lock.lock();
      if (stop && !ticket.ended) cancels_.push_back(ticket.id);
    }
    if (!busy_ && turns_wanted_ == 0) {
      make_step(lock);
    } else {
      changed_.wait_for(lock, std::chrono::duration<double>(policy::kCancelPollSeconds));
    }
  }
}

void Desk::make_step(std::unique_lock<std::mutex>& lock) {
  busy_ = true;
  std::vector<RequestSpec> submitted = std::move(inbox_);
  const std::vector<RequestId> cancelled = std::move(cancels_);
  inbox_.clear();
  cancels_.clear();
  waiting_ += submitted.size();
  const double then = now_;
  lock.unlock();
  for (RequestSpec& spec : submitted) loop_.submit(std::move(spec));
  for (const RequestId id : cancelled) loop_.cancel(id);
  std::vector<RequestEvent> events;
  loop_.step(then, events);
  const double now = host_.seconds();
  lock.lock();
  now_ = std::max(now_, now);
  waiting_ = loop_.waiting();
  deliver(events, now);
  busy_ = false;
  changed_.notify_all();
}

void Desk::deliver(std::vector<RequestEvent>& events, double now) {
  for (RequestEvent& event : events) {
    const auto found = std::ranges::find(tickets_, event.id, [](const auto& ticket) { return ticket->id; });
    Ticket& ticket = **found;
    if (event.prompt_done) ticket.first_token = now;
    const bool ended = event.end != nullptr;
    ticket.events.push_back(std::move(event));
    if (!ended) continue;
    ticket.ended = true;
    ticket.finished = now;
    tickets_.erase(found);
  }
}

}  // namespace adze::engine
