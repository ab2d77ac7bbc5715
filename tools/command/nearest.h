#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tools {

/// Returns the word that is most similar to `text`: the one with the fewest letters to insert, remove, replace or
/// exchange with their neighbours. Empty where all differ by more than a third of the letters.
std::string nearest(std::string_view text, const std::vector<std::string>& words);

/// Returns "; did you mean WORD?", or nothing where no word is similar.
std::string did_you_mean(std::string_view text, const std::vector<std::string>& words);

/// Returns "a, b and c".
std::string enumeration(const std::vector<std::string>& words, std::string_view last = "and");

}  // namespace lockstep::tools
