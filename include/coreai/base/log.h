// The library's logger: silent below warnings unless an application lowers the level. Output goes to stderr.
#pragma once

#include <string_view>

namespace coreai {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

void set_log_level(LogLevel level);
void log(LogLevel level, std::string_view message);

}  // namespace coreai
