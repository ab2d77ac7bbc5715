# Writes a source with the texts of files as constants: cmake -DOUTPUT=FILE -DFOLDER=DIR -P embed.cmake

function(embed name file)
  file(READ "${FOLDER}/${file}" text)
  string(FIND "${text}" ")EMBEDDED\"" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "${file} contains the end mark of its literal")
  endif()
  file(APPEND "${OUTPUT}" "const char* const ${name} = R\"EMBEDDED(${text})EMBEDDED\";\n")
endfunction()

file(WRITE "${OUTPUT}" "#include \"tools/report/report_assets.h\"\n\nnamespace lockstep::tools::reports {\n\n")
embed(kReportHtml report.html)
embed(kReportCss report.css)
embed(kChartJs chart.js)
embed(kReadingJs reading.js)
embed(kReportJs report.js)
file(APPEND "${OUTPUT}" "\n}  // namespace lockstep::tools::reports\n")
