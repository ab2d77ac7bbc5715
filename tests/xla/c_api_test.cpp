// Compares our declarations with the header that came with a plugin, while compiling. There is nothing to run.
#include "lockstep/xla/pjrt/c_api.h"

#include <pjrt_c_api.h>

#include "lockstep/xla/pjrt/client.h"

namespace lockstep::xla::c_api {
namespace {

constexpr size_t slot_at(size_t offset) { return (offset - offsetof(Table, functions)) / sizeof(Function); }

#define LOCKSTEP_SAME_SLOT(ours, theirs) \
  static_assert(static_cast<size_t>(Slot::ours) == slot_at(offsetof(PJRT_Api, theirs)))
#define LOCKSTEP_SAME_FIELD(Ours, ours, Theirs, theirs) \
  static_assert(offsetof(Ours, ours) == offsetof(Theirs, theirs) && sizeof(Ours::ours) == sizeof(Theirs::theirs))
#define LOCKSTEP_SAME_HEADER(Ours, Theirs)                                      \
  static_assert(offsetof(Ours, header.size) == offsetof(Theirs, struct_size) && \
                offsetof(Ours, header.extensions) == offsetof(Theirs, extension_start))

LOCKSTEP_SAME_SLOT(ErrorDestroy, PJRT_Error_Destroy);
LOCKSTEP_SAME_SLOT(ErrorMessage, PJRT_Error_Message);
LOCKSTEP_SAME_SLOT(PluginInitialize, PJRT_Plugin_Initialize);
LOCKSTEP_SAME_SLOT(EventDestroy, PJRT_Event_Destroy);
LOCKSTEP_SAME_SLOT(EventAwait, PJRT_Event_Await);
LOCKSTEP_SAME_SLOT(ClientCreate, PJRT_Client_Create);
LOCKSTEP_SAME_SLOT(ClientPlatformName, PJRT_Client_PlatformName);
LOCKSTEP_SAME_SLOT(ClientPlatformVersion, PJRT_Client_PlatformVersion);
LOCKSTEP_SAME_SLOT(ClientAddressableDevices, PJRT_Client_AddressableDevices);
LOCKSTEP_SAME_SLOT(ClientCompile, PJRT_Client_Compile);
LOCKSTEP_SAME_SLOT(ClientBufferFromHostBuffer, PJRT_Client_BufferFromHostBuffer);
LOCKSTEP_SAME_SLOT(DescriptionId, PJRT_DeviceDescription_Id);
LOCKSTEP_SAME_SLOT(DescriptionProcessIndex, PJRT_DeviceDescription_ProcessIndex);
LOCKSTEP_SAME_SLOT(DescriptionAttributes, PJRT_DeviceDescription_Attributes);
LOCKSTEP_SAME_SLOT(DescriptionKind, PJRT_DeviceDescription_Kind);
LOCKSTEP_SAME_SLOT(DescriptionToString, PJRT_DeviceDescription_ToString);
LOCKSTEP_SAME_SLOT(DeviceGetDescription, PJRT_Device_GetDescription);
LOCKSTEP_SAME_SLOT(ExecutableDestroy, PJRT_Executable_Destroy);
LOCKSTEP_SAME_SLOT(ExecutableNumOutputs, PJRT_Executable_NumOutputs);
LOCKSTEP_SAME_SLOT(ExecutableOptimizedProgram, PJRT_Executable_OptimizedProgram);
LOCKSTEP_SAME_SLOT(ExecutableSerialize, PJRT_Executable_Serialize);
LOCKSTEP_SAME_SLOT(ExecutableDeserializeAndLoad, PJRT_Executable_DeserializeAndLoad);
LOCKSTEP_SAME_SLOT(LoadedExecutableDestroy, PJRT_LoadedExecutable_Destroy);
LOCKSTEP_SAME_SLOT(LoadedExecutableGetExecutable, PJRT_LoadedExecutable_GetExecutable);
LOCKSTEP_SAME_SLOT(LoadedExecutableExecute, PJRT_LoadedExecutable_Execute);
LOCKSTEP_SAME_SLOT(BufferDestroy, PJRT_Buffer_Destroy);
LOCKSTEP_SAME_SLOT(BufferDimensions, PJRT_Buffer_Dimensions);
LOCKSTEP_SAME_SLOT(BufferOnDeviceSize, PJRT_Buffer_OnDeviceSizeInBytes);
LOCKSTEP_SAME_SLOT(BufferIsDeleted, PJRT_Buffer_IsDeleted);
LOCKSTEP_SAME_SLOT(BufferToHostBuffer, PJRT_Buffer_ToHostBuffer);
LOCKSTEP_SAME_SLOT(BufferReadyEvent, PJRT_Buffer_ReadyEvent);
LOCKSTEP_SAME_SLOT(ExecutableMemoryStats, PJRT_Executable_GetCompiledMemoryStats);

LOCKSTEP_SAME_HEADER(Table, PJRT_Api);
LOCKSTEP_SAME_HEADER(Version, PJRT_Api_Version);
LOCKSTEP_SAME_FIELD(Table, version, PJRT_Api, pjrt_api_version);
LOCKSTEP_SAME_FIELD(Version, major, PJRT_Api_Version, major_version);
LOCKSTEP_SAME_FIELD(Version, minor, PJRT_Api_Version, minor_version);

// The one block that also stands in lists: its size counts.
static_assert(sizeof(NamedValue) == sizeof(PJRT_NamedValue));
LOCKSTEP_SAME_HEADER(NamedValue, PJRT_NamedValue);
LOCKSTEP_SAME_FIELD(NamedValue, name, PJRT_NamedValue, name);
LOCKSTEP_SAME_FIELD(NamedValue, name_size, PJRT_NamedValue, name_size);
LOCKSTEP_SAME_FIELD(NamedValue, type, PJRT_NamedValue, type);
LOCKSTEP_SAME_FIELD(NamedValue, integer, PJRT_NamedValue, int64_value);
LOCKSTEP_SAME_FIELD(NamedValue, integers, PJRT_NamedValue, int64_array_value);
LOCKSTEP_SAME_FIELD(NamedValue, value_size, PJRT_NamedValue, value_size);
static_assert(static_cast<int>(ValueType::Int64) == PJRT_NamedValue_kInt64);
LOCKSTEP_SAME_FIELD(NamedValue, text, PJRT_NamedValue, string_value);
LOCKSTEP_SAME_FIELD(NamedValue, number, PJRT_NamedValue, float_value);
LOCKSTEP_SAME_FIELD(NamedValue, flag, PJRT_NamedValue, bool_value);
static_assert(static_cast<int>(ValueType::String) == PJRT_NamedValue_kString);
static_assert(static_cast<int>(ValueType::Int64List) == PJRT_NamedValue_kInt64List);
static_assert(static_cast<int>(ValueType::Float) == PJRT_NamedValue_kFloat);
static_assert(static_cast<int>(ValueType::Bool) == PJRT_NamedValue_kBool);

LOCKSTEP_SAME_HEADER(NoArguments, PJRT_Plugin_Initialize_Args);

LOCKSTEP_SAME_FIELD(OneObject, object, PJRT_Error_Destroy_Args, error);
LOCKSTEP_SAME_FIELD(OneObject, object, PJRT_Event_Destroy_Args, event);
LOCKSTEP_SAME_FIELD(OneObject, object, PJRT_Event_Await_Args, event);
LOCKSTEP_SAME_FIELD(OneObject, object, PJRT_Executable_Destroy_Args, executable);
LOCKSTEP_SAME_FIELD(OneObject, object, PJRT_LoadedExecutable_Destroy_Args, executable);
LOCKSTEP_SAME_FIELD(OneObject, object, PJRT_Buffer_Destroy_Args, buffer);

LOCKSTEP_SAME_FIELD(ObjectOfObject, object, PJRT_Device_GetDescription_Args, device);
LOCKSTEP_SAME_FIELD(ObjectOfObject, result, PJRT_Device_GetDescription_Args, device_description);
LOCKSTEP_SAME_FIELD(ObjectOfObject, object, PJRT_LoadedExecutable_GetExecutable_Args, loaded_executable);
LOCKSTEP_SAME_FIELD(ObjectOfObject, result, PJRT_LoadedExecutable_GetExecutable_Args, executable);
LOCKSTEP_SAME_FIELD(ObjectOfObject, object, PJRT_Buffer_ReadyEvent_Args, buffer);
LOCKSTEP_SAME_FIELD(ObjectOfObject, result, PJRT_Buffer_ReadyEvent_Args, event);

#define LOCKSTEP_SAME_TEXT(Theirs, their_object, their_text, their_size) \
  LOCKSTEP_SAME_FIELD(TextOfObject, object, Theirs, their_object);       \
  LOCKSTEP_SAME_FIELD(TextOfObject, text, Theirs, their_text);           \
  LOCKSTEP_SAME_FIELD(TextOfObject, text_size, Theirs, their_size)
LOCKSTEP_SAME_TEXT(PJRT_Error_Message_Args, error, message, message_size);
LOCKSTEP_SAME_TEXT(PJRT_Client_PlatformName_Args, client, platform_name, platform_name_size);
LOCKSTEP_SAME_TEXT(PJRT_Client_PlatformVersion_Args, client, platform_version, platform_version_size);
LOCKSTEP_SAME_TEXT(PJRT_DeviceDescription_Kind_Args, device_description, device_kind, device_kind_size);
LOCKSTEP_SAME_TEXT(PJRT_DeviceDescription_ToString_Args, device_description, to_string, to_string_size);

LOCKSTEP_SAME_FIELD(IntOfObject, object, PJRT_DeviceDescription_Id_Args, device_description);
LOCKSTEP_SAME_FIELD(IntOfObject, result, PJRT_DeviceDescription_Id_Args, id);
LOCKSTEP_SAME_FIELD(IntOfObject, object, PJRT_DeviceDescription_ProcessIndex_Args, device_description);
LOCKSTEP_SAME_FIELD(IntOfObject, result, PJRT_DeviceDescription_ProcessIndex_Args, process_index);
LOCKSTEP_SAME_FIELD(SizeOfObject, object, PJRT_Executable_NumOutputs_Args, executable);
LOCKSTEP_SAME_FIELD(SizeOfObject, result, PJRT_Executable_NumOutputs_Args, num_outputs);
LOCKSTEP_SAME_FIELD(SizeOfObject, object, PJRT_Buffer_OnDeviceSizeInBytes_Args, buffer);
LOCKSTEP_SAME_FIELD(SizeOfObject, result, PJRT_Buffer_OnDeviceSizeInBytes_Args, on_device_size_in_bytes);
LOCKSTEP_SAME_FIELD(BoolOfObject, object, PJRT_Buffer_IsDeleted_Args, buffer);
LOCKSTEP_SAME_FIELD(BoolOfObject, result, PJRT_Buffer_IsDeleted_Args, is_deleted);

LOCKSTEP_SAME_FIELD(Attributes, description, PJRT_DeviceDescription_Attributes_Args, device_description);
LOCKSTEP_SAME_FIELD(Attributes, num_attributes, PJRT_DeviceDescription_Attributes_Args, num_attributes);
LOCKSTEP_SAME_FIELD(Attributes, attributes, PJRT_DeviceDescription_Attributes_Args, attributes);
LOCKSTEP_SAME_FIELD(Devices, client, PJRT_Client_AddressableDevices_Args, client);
LOCKSTEP_SAME_FIELD(Devices, devices, PJRT_Client_AddressableDevices_Args, addressable_devices);
LOCKSTEP_SAME_FIELD(Devices, num_devices, PJRT_Client_AddressableDevices_Args, num_addressable_devices);

LOCKSTEP_SAME_FIELD(ClientCreate, options, PJRT_Client_Create_Args, create_options);
LOCKSTEP_SAME_FIELD(ClientCreate, num_options, PJRT_Client_Create_Args, num_options);
LOCKSTEP_SAME_FIELD(ClientCreate, client, PJRT_Client_Create_Args, client);

LOCKSTEP_SAME_FIELD(Program, code, PJRT_Program, code);
LOCKSTEP_SAME_FIELD(Program, code_size, PJRT_Program, code_size);
LOCKSTEP_SAME_FIELD(Program, format, PJRT_Program, format);
LOCKSTEP_SAME_FIELD(Program, format_size, PJRT_Program, format_size);
LOCKSTEP_SAME_FIELD(Compile, client, PJRT_Client_Compile_Args, client);
LOCKSTEP_SAME_FIELD(Compile, program, PJRT_Client_Compile_Args, program);
LOCKSTEP_SAME_FIELD(Compile, options, PJRT_Client_Compile_Args, compile_options);
LOCKSTEP_SAME_FIELD(Compile, options_size, PJRT_Client_Compile_Args, compile_options_size);
LOCKSTEP_SAME_FIELD(Compile, executable, PJRT_Client_Compile_Args, executable);
LOCKSTEP_SAME_FIELD(OptimizedProgram, executable, PJRT_Executable_OptimizedProgram_Args, executable);
LOCKSTEP_SAME_FIELD(OptimizedProgram, program, PJRT_Executable_OptimizedProgram_Args, program);

LOCKSTEP_SAME_FIELD(BufferFromHost, client, PJRT_Client_BufferFromHostBuffer_Args, client);
LOCKSTEP_SAME_FIELD(BufferFromHost, data, PJRT_Client_BufferFromHostBuffer_Args, data);
LOCKSTEP_SAME_FIELD(BufferFromHost, type, PJRT_Client_BufferFromHostBuffer_Args, type);
LOCKSTEP_SAME_FIELD(BufferFromHost, dims, PJRT_Client_BufferFromHostBuffer_Args, dims);
LOCKSTEP_SAME_FIELD(BufferFromHost, num_dims, PJRT_Client_BufferFromHostBuffer_Args, num_dims);
LOCKSTEP_SAME_FIELD(BufferFromHost, semantics, PJRT_Client_BufferFromHostBuffer_Args, host_buffer_semantics);
LOCKSTEP_SAME_FIELD(BufferFromHost, device, PJRT_Client_BufferFromHostBuffer_Args, device);
LOCKSTEP_SAME_FIELD(BufferFromHost, done_with_host_buffer, PJRT_Client_BufferFromHostBuffer_Args,
                    done_with_host_buffer);
LOCKSTEP_SAME_FIELD(BufferFromHost, buffer, PJRT_Client_BufferFromHostBuffer_Args, buffer);
static_assert(kImmutableOnlyDuringCall == PJRT_HostBufferSemantics_kImmutableOnlyDuringCall);

LOCKSTEP_SAME_FIELD(Dimensions, buffer, PJRT_Buffer_Dimensions_Args, buffer);
LOCKSTEP_SAME_FIELD(Dimensions, dims, PJRT_Buffer_Dimensions_Args, dims);
LOCKSTEP_SAME_FIELD(Dimensions, num_dims, PJRT_Buffer_Dimensions_Args, num_dims);
LOCKSTEP_SAME_HEADER(TiledLayout, PJRT_Buffer_MemoryLayout_Tiled);
LOCKSTEP_SAME_FIELD(TiledLayout, minor_to_major, PJRT_Buffer_MemoryLayout_Tiled, minor_to_major);
LOCKSTEP_SAME_FIELD(TiledLayout, num_dims, PJRT_Buffer_MemoryLayout_Tiled, minor_to_major_size);
LOCKSTEP_SAME_FIELD(TiledLayout, num_tiles, PJRT_Buffer_MemoryLayout_Tiled, num_tiles);
LOCKSTEP_SAME_FIELD(MemoryLayout, tiled, PJRT_Buffer_MemoryLayout, tiled);
LOCKSTEP_SAME_FIELD(MemoryLayout, type, PJRT_Buffer_MemoryLayout, type);
static_assert(kTiledLayout == PJRT_Buffer_MemoryLayout_Type_Tiled);
LOCKSTEP_SAME_FIELD(BufferToHost, buffer, PJRT_Buffer_ToHostBuffer_Args, src);
LOCKSTEP_SAME_FIELD(BufferToHost, host_layout, PJRT_Buffer_ToHostBuffer_Args, host_layout);
LOCKSTEP_SAME_FIELD(BufferToHost, destination, PJRT_Buffer_ToHostBuffer_Args, dst);
LOCKSTEP_SAME_FIELD(BufferToHost, destination_size, PJRT_Buffer_ToHostBuffer_Args, dst_size);
LOCKSTEP_SAME_FIELD(BufferToHost, event, PJRT_Buffer_ToHostBuffer_Args, event);

LOCKSTEP_SAME_FIELD(ExecuteOptions, launch_id, PJRT_ExecuteOptions, launch_id);
LOCKSTEP_SAME_FIELD(ExecuteOptions, kept_arguments, PJRT_ExecuteOptions, non_donatable_input_indices);
LOCKSTEP_SAME_FIELD(ExecuteOptions, num_kept_arguments, PJRT_ExecuteOptions, num_non_donatable_input_indices);
LOCKSTEP_SAME_FIELD(Execute, executable, PJRT_LoadedExecutable_Execute_Args, executable);
LOCKSTEP_SAME_FIELD(Execute, options, PJRT_LoadedExecutable_Execute_Args, options);
LOCKSTEP_SAME_FIELD(Execute, arguments, PJRT_LoadedExecutable_Execute_Args, argument_lists);
LOCKSTEP_SAME_FIELD(Execute, num_devices, PJRT_LoadedExecutable_Execute_Args, num_devices);
LOCKSTEP_SAME_FIELD(Execute, num_arguments, PJRT_LoadedExecutable_Execute_Args, num_args);
LOCKSTEP_SAME_FIELD(Execute, results, PJRT_LoadedExecutable_Execute_Args, output_lists);

LOCKSTEP_SAME_FIELD(Serialize, executable, PJRT_Executable_Serialize_Args, executable);
LOCKSTEP_SAME_FIELD(Serialize, bytes, PJRT_Executable_Serialize_Args, serialized_bytes);
LOCKSTEP_SAME_FIELD(Serialize, num_bytes, PJRT_Executable_Serialize_Args, serialized_bytes_size);
LOCKSTEP_SAME_FIELD(Serialize, owner, PJRT_Executable_Serialize_Args, serialized_executable);
LOCKSTEP_SAME_FIELD(Serialize, release, PJRT_Executable_Serialize_Args, serialized_executable_deleter);
LOCKSTEP_SAME_FIELD(DeserializeAndLoad, client, PJRT_Executable_DeserializeAndLoad_Args, client);
LOCKSTEP_SAME_FIELD(DeserializeAndLoad, bytes, PJRT_Executable_DeserializeAndLoad_Args, serialized_executable);
LOCKSTEP_SAME_FIELD(DeserializeAndLoad, num_bytes, PJRT_Executable_DeserializeAndLoad_Args, serialized_executable_size);
LOCKSTEP_SAME_FIELD(DeserializeAndLoad, executable, PJRT_Executable_DeserializeAndLoad_Args, loaded_executable);

LOCKSTEP_SAME_FIELD(MemoryStats, executable, PJRT_Executable_GetCompiledMemoryStats_Args, executable);
LOCKSTEP_SAME_FIELD(MemoryStats, code, PJRT_Executable_GetCompiledMemoryStats_Args, generated_code_size_in_bytes);
LOCKSTEP_SAME_FIELD(MemoryStats, arguments, PJRT_Executable_GetCompiledMemoryStats_Args, argument_size_in_bytes);
LOCKSTEP_SAME_FIELD(MemoryStats, results, PJRT_Executable_GetCompiledMemoryStats_Args, output_size_in_bytes);
LOCKSTEP_SAME_FIELD(MemoryStats, aliased, PJRT_Executable_GetCompiledMemoryStats_Args, alias_size_in_bytes);
LOCKSTEP_SAME_FIELD(MemoryStats, temporary, PJRT_Executable_GetCompiledMemoryStats_Args, temp_size_in_bytes);

#define LOCKSTEP_SAME_TYPE(ours, theirs) static_assert(static_cast<int>(ElementType::ours) == PJRT_Buffer_Type_##theirs)
LOCKSTEP_SAME_TYPE(Pred, PRED);
LOCKSTEP_SAME_TYPE(S8, S8);
LOCKSTEP_SAME_TYPE(S16, S16);
LOCKSTEP_SAME_TYPE(S32, S32);
LOCKSTEP_SAME_TYPE(S64, S64);
LOCKSTEP_SAME_TYPE(U8, U8);
LOCKSTEP_SAME_TYPE(F16, F16);
LOCKSTEP_SAME_TYPE(F32, F32);
LOCKSTEP_SAME_TYPE(F64, F64);
LOCKSTEP_SAME_TYPE(BF16, BF16);

}  // namespace
}  // namespace lockstep::xla::c_api
