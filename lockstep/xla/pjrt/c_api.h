#pragma once

#include <cstddef>
#include <cstdint>

/// The part of the PJRT C interface that the client uses, declared from its binary layout: the table that a plugin
/// returns, the slots of its functions, and the argument block of each. Fields are only ever appended, so these hold
/// for every version since 0.40; tests/xla/c_api_test.cpp compares them with the plugin's own header.
///
/// Every function takes one block and returns an error, or null. Blocks begin with their size; a plugin rejects one
/// that is shorter than it expects, so all blocks are longer than needed and zero: see `Block`.
namespace lockstep::xla::c_api {

/// Numbers of functions in the table.
enum class Slot : size_t {
  ErrorDestroy = 0,
  ErrorMessage = 1,
  PluginInitialize = 3,
  EventDestroy = 5,
  EventAwait = 8,
  ClientCreate = 10,
  ClientPlatformName = 12,
  ClientPlatformVersion = 14,
  ClientAddressableDevices = 16,
  ClientCompile = 20,
  ClientBufferFromHostBuffer = 22,
  DescriptionId = 23,
  DescriptionProcessIndex = 24,
  DescriptionAttributes = 25,
  DescriptionKind = 26,
  DescriptionToString = 28,
  DeviceGetDescription = 29,
  ExecutableDestroy = 40,
  ExecutableNumOutputs = 44,
  ExecutableOptimizedProgram = 48,
  ExecutableSerialize = 49,
  LoadedExecutableDestroy = 50,
  LoadedExecutableGetExecutable = 51,
  LoadedExecutableExecute = 55,
  ExecutableDeserializeAndLoad = 56,
  BufferDestroy = 58,
  BufferDimensions = 60,
  BufferOnDeviceSize = 64,
  BufferIsDeleted = 68,
  BufferToHostBuffer = 70,
  BufferReadyEvent = 72,
  ExecutableMemoryStats = 96,
};

/// How every block, and the table itself, begins. `size` is that of the whole.
struct Header {
  size_t size;
  void* extensions;
};

struct Version {
  Header header;
  int major;
  int minor;
};

using Function = void* (*)(void* block);

struct Table {
  Header header;
  Version version;
  /// As many as fit `header.size`.
  Function functions[1];
};

enum class ValueType : int { String = 0, Int64 = 1, Int64List = 2, Float = 3, Bool = 4 };

/// An option for a plugin, or an attribute that it reports.
struct NamedValue {
  Header header;
  const char* name;
  size_t name_size;
  ValueType type;
  union {
    const char* text;
    int64_t integer;
    const int64_t* integers;
    float number;
    bool flag;
  };
  /// Number of characters or entries; 1 for others.
  size_t value_size;
};

/// Plugin_Initialize.
struct NoArguments {
  Header header;
};

/// Every function that destroys something, and Event_Await.
struct OneObject {
  Header header;
  void* object;
};

/// Functions that ask an object for another: Device_GetDescription, GetExecutable, Buffer_ReadyEvent.
struct ObjectOfObject {
  Header header;
  void* object;
  void* result;
};

/// Functions that ask an object for a text: Error_Message, PlatformName, PlatformVersion, Kind, ToString.
struct TextOfObject {
  Header header;
  const void* object;
  const char* text;
  size_t text_size;
};

/// Id, ProcessIndex.
struct IntOfObject {
  Header header;
  void* object;
  int result;
};

/// NumOutputs, OnDeviceSizeInBytes.
struct SizeOfObject {
  Header header;
  void* object;
  size_t result;
};

/// IsDeleted.
struct BoolOfObject {
  Header header;
  void* object;
  bool result;
};

struct Attributes {
  Header header;
  void* description;
  size_t num_attributes;
  const NamedValue* attributes;
};

struct Devices {
  Header header;
  void* client;
  void* const* devices;
  size_t num_devices;
};

struct ClientCreate {
  Header header;
  const NamedValue* options;
  size_t num_options;
  /// Functions of a store that several processes share: get, its argument, put, its argument.
  void* store[4];
  void* client;
};

struct Program {
  Header header;
  char* code;
  size_t code_size;
  const char* format;
  size_t format_size;
};

struct Compile {
  Header header;
  void* client;
  const Program* program;
  const char* options;
  size_t options_size;
  void* executable;
};

/// When host data may change: here, after the call.
constexpr int kImmutableOnlyDuringCall = 0;

struct BufferFromHost {
  Header header;
  void* client;
  const void* data;
  int type;
  const int64_t* dims;
  size_t num_dims;
  const int64_t* byte_strides;
  size_t num_byte_strides;
  int semantics;
  void* device;
  void* memory;
  void* device_layout;
  void* done_with_host_buffer;
  void* buffer;
};

struct Dimensions {
  Header header;
  void* buffer;
  const int64_t* dims;
  size_t num_dims;
};

/// The order of dimensions in memory, the fastest first; tiles are for devices only.
struct TiledLayout {
  Header header;
  const int64_t* minor_to_major;
  size_t num_dims;
  const int64_t* tile_dims;
  const size_t* tile_dim_sizes;
  size_t num_tiles;
};

constexpr int kTiledLayout = 0;

struct MemoryLayout {
  Header header;
  TiledLayout tiled;
  int type;
};

struct BufferToHost {
  Header header;
  void* buffer;
  const MemoryLayout* host_layout;
  void* destination;
  size_t destination_size;
  void* event;
};

struct ExecuteOptions {
  Header header;
  void* send_callbacks;
  void* receive_callbacks;
  size_t num_send;
  size_t num_receive;
  int launch_id;
  const int64_t* kept_arguments;
  size_t num_kept_arguments;
};

struct Execute {
  Header header;
  void* executable;
  ExecuteOptions* options;
  void* const* const* arguments;
  size_t num_devices;
  size_t num_arguments;
  void** const* results;
  void** complete_events;
  void* device;
};

struct OptimizedProgram {
  Header header;
  void* executable;
  Program* program;
};

/// `owner` holds the bytes until `release` is called with it.
struct Serialize {
  Header header;
  const void* executable;
  const char* bytes;
  size_t num_bytes;
  void* owner;
  void (*release)(void* owner);
};

struct DeserializeAndLoad {
  Header header;
  void* client;
  const char* bytes;
  size_t num_bytes;
  void* executable;
};

struct MemoryStats {
  Header header;
  void* executable;
  int64_t code;
  int64_t arguments;
  int64_t results;
  int64_t aliased;
  int64_t temporary;
};

/// A block of arguments, zero except for its size, with space behind it for fields of newer plugins.
template <typename Arguments>
class Block {
 public:
  Block() { arguments_.header.size = sizeof(*this); }
  Arguments* operator->() { return &arguments_; }
  Arguments* get() { return &arguments_; }

 private:
  static constexpr size_t kRoom = 256;
  Arguments arguments_{};
  char room_[kRoom] = {};
};

}  // namespace lockstep::xla::c_api
