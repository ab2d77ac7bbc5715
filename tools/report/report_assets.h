#pragma once

/// The files of this folder that become parts of a page; the build makes the source of them (embed.cmake).
namespace lockstep::tools::reports {

extern const char* const kReportHtml;
extern const char* const kReportCss;
extern const char* const kChartJs;
extern const char* const kReadingJs;
extern const char* const kReportJs;

}  // namespace lockstep::tools::reports
