#include "tools/command/nearest.h"

#include <algorithm>

namespace lockstep::tools {
namespace {

/// The optimal string alignment distance.
size_t distance_of(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> table(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) table[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) table[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      table[i][j] = std::min({table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
      }
    }
  }
  return table[a.size()][b.size()];
}

}  // namespace

std::string nearest(std::string_view text, const std::vector<std::string>& words) {
  std::string best;
  size_t least = std::max<size_t>(1, text.size() / 3) + 1;
  for (const std::string& word : words) {
    size_t distance = distance_of(text, word);
    // A word that was cut off, or goes on: --batch for --batch-size.
    const std::string_view shorter = text.size() < word.size() ? text : std::string_view(word);
    const std::string_view longer = text.size() < word.size() ? std::string_view(word) : text;
    if (shorter.size() > 4 && longer.substr(0, shorter.size()) == shorter) distance = std::min<size_t>(distance, 2);
    if (distance < least) {
      least = distance;
      best = word;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view text, const std::vector<std::string>& words) {
  const std::string word = nearest(text, words);
  return word.empty() ? "" : "; did you mean " + word + "?";
}

std::string enumeration(const std::vector<std::string>& words, std::string_view last) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " " + std::string(last) + " " : ", ";
    text += words[i];
  }
  return text;
}

}  // namespace lockstep::tools
