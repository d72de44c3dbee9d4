// strftime in the C locale, on a calendar time that has no zone.
#include "text/jinja/runtime.hpp"

namespace adze::text::jinja {
namespace {

constexpr std::string_view kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                        "July",    "August",   "September", "October", "November", "December"};

bool is_leap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

// Days since 1970-01-01 in the proleptic Gregorian calendar.
long long days_since_epoch(int year, int month, int day) {
  const long long y = month <= 2 ? year - 1LL : year;
  const long long era = (y >= 0 ? y : y - 399) / 400;
  const long long of_era = y - era * 400;
  const long long of_year = (153LL * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

int weekday(const CivilTime& t) {  // Sunday is 0
  return static_cast<int>(((days_since_epoch(t.year, t.month, t.day) + 4) % 7 + 7) % 7);
}

int day_of_year(const CivilTime& t) {  // 1..366
  return static_cast<int>(days_since_epoch(t.year, t.month, t.day) - days_since_epoch(t.year, 1, 1)) + 1;
}

struct IsoWeek {
  int year;
  int week;
};

IsoWeek iso_week(const CivilTime& t) {
  const int from_monday = (weekday(t) + 6) % 7;
  const int week = (day_of_year(t) - 1 - from_monday + 10) / 7;
  const auto weeks_in = [](int year) {
    const int january_first = weekday({year, 1, 1, 0, 0, 0});
    return january_first == 4 || (is_leap(year) && january_first == 3) ? 53 : 52;
  };
  if (week < 1) return {t.year - 1, weeks_in(t.year - 1)};
  if (week > weeks_in(t.year)) return {t.year + 1, 1};
  return {t.year, week};
}

std::string number(int value, int width, char pad, char flag) {
  if (flag == '-') return fmt::format("{}", value);
  if (flag == '_') pad = ' ';
  if (flag == '0') pad = '0';
  return pad == '0' ? fmt::format("{:0{}}", value, width) : fmt::format("{:{}}", value, width);
}

std::string directive(const CivilTime& t, char letter, char flag) {
  const int hour12 = t.hour % 12 == 0 ? 12 : t.hour % 12;
  const auto day_name = kDays[weekday(t)];
  const auto month_name = kMonths[t.month - 1];
  switch (letter) {
    case 'a': return std::string(day_name.substr(0, 3));
    case 'A': return std::string(day_name);
    case 'b':
    case 'h': return std::string(month_name.substr(0, 3));
    case 'B': return std::string(month_name);
    case 'c': return format_time(t, "%a %b %e %H:%M:%S %Y");
    case 'C': return number(t.year / 100, 2, '0', flag);
    case 'd': return number(t.day, 2, '0', flag);
    case 'D':
    case 'x': return format_time(t, "%m/%d/%y");
    case 'e': return number(t.day, 2, ' ', flag);
    case 'f': return "000000";
    case 'F': return format_time(t, "%Y-%m-%d");
    case 'g': return number(iso_week(t).year % 100, 2, '0', flag);
    case 'G': return fmt::format("{}", iso_week(t).year);
    case 'H': return number(t.hour, 2, '0', flag);
    case 'I': return number(hour12, 2, '0', flag);
    case 'j': return number(day_of_year(t), 3, '0', flag);
    case 'k': return number(t.hour, 2, ' ', flag);
    case 'l': return number(hour12, 2, ' ', flag);
    case 'm': return number(t.month, 2, '0', flag);
    case 'M': return number(t.minute, 2, '0', flag);
    case 'n': return "\n";
    case 'p': return t.hour < 12 ? "AM" : "PM";
    case 'P': return t.hour < 12 ? "am" : "pm";
    case 'r': return format_time(t, "%I:%M:%S %p");
    case 'R': return format_time(t, "%H:%M");
    case 's':
      return fmt::format("{}",
                         days_since_epoch(t.year, t.month, t.day) * 86400 + t.hour * 3600 + t.minute * 60 + t.second);
    case 'S': return number(t.second, 2, '0', flag);
    case 't': return "\t";
    case 'T':
    case 'X': return format_time(t, "%H:%M:%S");
    case 'u': return fmt::format("{}", weekday(t) == 0 ? 7 : weekday(t));
    case 'U': return number((day_of_year(t) - 1 + 7 - weekday(t)) / 7, 2, '0', flag);
    case 'V': return number(iso_week(t).week, 2, '0', flag);
    case 'w': return fmt::format("{}", weekday(t));
    case 'W': return number((day_of_year(t) - 1 + 7 - (weekday(t) + 6) % 7) / 7, 2, '0', flag);
    case 'y': return number(t.year % 100, 2, '0', flag);
    case 'Y': return number(t.year, 4, '0', flag == 0 ? '-' : flag);
    case 'z':
    case 'Z': return "";
    case '%': return "%";
    default: return std::string("%") + letter;
  }
}

}  // namespace

std::string format_time(const CivilTime& time, std::string_view format) {
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out.push_back(format[i]);
      continue;
    }
    char flag = 0;
    if ((format[i + 1] == '-' || format[i + 1] == '_' || format[i + 1] == '0') && i + 2 < format.size())
      flag = format[++i];
    out += directive(time, format[++i], flag);
  }
  return out;
}

}  // namespace adze::text::jinja
