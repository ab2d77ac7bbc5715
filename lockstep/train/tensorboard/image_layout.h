#pragma once

namespace lockstep::tensorboard {

/// Where the channels of an image are. Auto: where the sizes allow one layout only.
enum class ImageLayout { Auto, HWC, CHW };

}  // namespace lockstep::tensorboard
