#include "engine/desk.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/policy.hpp"

namespace adze::engine {

Desk::Turn::Turn(Desk& desk) : desk_(desk) {
  std::unique_lock lock(desk_.mutex_);
  ++desk_.turns_wanted_;
  desk_.changed_.wait(lock, [&] { return !desk_.busy_ && !(desk_.step_is_next_ && desk_.steppers_ > 0); });
  --desk_.turns_wanted_;
  desk_.busy_ = true;
  desk_.settle(lock);
}

Desk::Turn::~Turn() {
  std::unique_lock lock(desk_.mutex_);
  desk_.settle(lock);
  desk_.busy_ = false;
  desk_.step_is_next_ = true;
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
    has_deadlines_ = has_deadlines_ || order.spec.start_by || order.spec.finish_by;
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

void Desk::cancel(Ticket& ticket) {
  std::unique_lock lock(mutex_);
  ask_to_cancel(ticket);
  if (busy_ || cancels_.empty()) return;  // whoever is busy settles it
  busy_ = true;
  settle(lock);
  busy_ = false;
  changed_.notify_all();
}

void Desk::drop(Ticket& ticket) {
  {
    const std::lock_guard lock(mutex_);
    if (ticket.ended) return;
    ask_to_cancel(ticket);
  }
  const Turn turn(*this);  // ends it, and no step is in its callbacks any more
}

void Desk::ask_to_cancel(Ticket& ticket) {
  if (!ticket.ended && !std::exchange(ticket.cancel_asked, true)) cancels_.push_back(ticket.id);
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
      if (stop) ask_to_cancel(ticket);
      if (!ticket.events.empty() || ticket.ended) continue;
    }
    if (!busy_ && (turns_wanted_ == 0 || step_is_next_)) {
      make_step(lock);
    } else {
      ++steppers_;
      changed_.wait_for(lock, std::chrono::duration<double>(policy::kCancelPollSeconds));
      --steppers_;
      if (turns_wanted_ > 0) changed_.notify_all();  // this thread may have no need of a step any more
    }
  }
}

// What came in goes to the loop, and what was cancelled ends: without a forward. The caller is busy and holds the lock.
void Desk::settle(std::unique_lock<std::mutex>& lock) {
  while (!inbox_.empty() || !cancels_.empty()) {
    const std::vector<RequestId> cancelled = take_in(lock);
    for (const RequestId id : cancelled) loop_.cancel(id);
    std::vector<RequestEvent> events;
    loop_.settle(events);
    lock.lock();
    waiting_ = loop_.waiting();
    deliver(events, now_);
  }
}

// Unlocks; the inbox is in the loop then, and the cancels are the caller's to pass on.
std::vector<RequestId> Desk::take_in(std::unique_lock<std::mutex>& lock) {
  std::vector<RequestSpec> submitted = std::exchange(inbox_, {});
  std::vector<RequestId> cancelled = std::exchange(cancels_, {});
  waiting_ += submitted.size();
  lock.unlock();
  for (RequestSpec& spec : submitted) loop_.submit(std::move(spec));
  return cancelled;
}

void Desk::make_step(std::unique_lock<std::mutex>& lock) {
  busy_ = true;
  const double then = has_deadlines_ ? std::max(host_.seconds(), now_) : now_;
  for (const RequestId id : take_in(lock)) loop_.cancel(id);
  std::vector<RequestEvent> events;
  loop_.step(then, events);
  const double now = host_.seconds();
  lock.lock();
  now_ = std::max(now_, now);
  waiting_ = loop_.waiting();
  deliver(events, now);
  settle(lock);
  busy_ = false;
  step_is_next_ = false;
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
