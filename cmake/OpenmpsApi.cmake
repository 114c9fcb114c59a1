# SPDX-License-Identifier: Apache-2.0
# The driver API layer and the commands between client and worker: runs api/generate.py when its
# inputs change. Offers
#   openmps_api_headers         INTERFACE: include paths of generated headers (#include "api/...")
#                               and the dependency on their generation
#   openmps_api_generated       the target that makes them, wire/commands/*.h among them
#   openmps_api_source(var f)   path of the generated file f, e.g. client_entry.cc
#   openmps_driver_library(t)   makes the shared library t a libcuda.so.1 of ours

set(OPENMPS_GENERATED_DIR ${CMAKE_BINARY_DIR}/generated)
set(openmps_api_generator ${PROJECT_SOURCE_DIR}/api/generate.py)

file(GLOB openmps_api_inputs CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/api/*.toml ${PROJECT_SOURCE_DIR}/api/commands/*.toml
     ${PROJECT_SOURCE_DIR}/api/generator/*.py)
set(openmps_command_info ${OPENMPS_GENERATED_DIR}/wire/command_info.cc)
set(openmps_command_headers ${OPENMPS_GENERATED_DIR}/wire/command.h ${OPENMPS_GENERATED_DIR}/wire/commands.h)
foreach(description IN LISTS openmps_api_inputs)
  if(description MATCHES "/commands/(.+)\\.toml$")
    list(APPEND openmps_command_headers ${OPENMPS_GENERATED_DIR}/wire/commands/${CMAKE_MATCH_1}.h)
  endif()
endforeach()
set(openmps_api_files
    client_calls.cc client_entry.cc client_handlers.h client_impl.h driver_table.h exports.map proc_address.cc proc_address.h
    prototypes.h softgpu_calls.cc softgpu_stubs.cc softgpu_table.h)
list(TRANSFORM openmps_api_files PREPEND ${OPENMPS_GENERATED_DIR}/api/
     OUTPUT_VARIABLE openmps_api_outputs)

# The stamp is newer than the inputs even when the content of every file stayed the same and was left
# alone.
add_custom_command(
  OUTPUT ${OPENMPS_GENERATED_DIR}/api.stamp
  BYPRODUCTS ${openmps_api_outputs} ${openmps_command_info}
             ${openmps_command_headers}
  COMMAND ${openmps_python} ${openmps_api_generator} --output ${OPENMPS_GENERATED_DIR}
  COMMAND ${CMAKE_COMMAND} -E touch ${OPENMPS_GENERATED_DIR}/api.stamp
  DEPENDS ${openmps_api_generator} ${openmps_api_inputs}
  COMMENT "Generating the driver API layer"
  VERBATIM)
add_custom_target(openmps_api_generated DEPENDS ${OPENMPS_GENERATED_DIR}/api.stamp)

add_library(openmps_api_headers INTERFACE)
target_link_libraries(openmps_api_headers INTERFACE openmps_options)
target_include_directories(openmps_api_headers INTERFACE ${OPENMPS_GENERATED_DIR}
                           ${PROJECT_SOURCE_DIR}/api/include)
add_dependencies(openmps_api_headers openmps_api_generated)

function(openmps_api_source variable name)
  if(NOT name IN_LIST openmps_api_files)
    message(FATAL_ERROR "openmps_api_source: api/generate.py makes no ${name}")
  endif()
  set(${variable} ${OPENMPS_GENERATED_DIR}/api/${name} PARENT_SCOPE)
endfunction()

# openmps_driver_library(target): name, exports and symbol binding of a driver library.
# -Bsymbolic: one of our libraries can be loaded below the other, and must not call its symbols.
function(openmps_driver_library target)
  openmps_api_source(exports exports.map)
  target_link_libraries(${target} PRIVATE openmps_api_headers)
  target_link_options(${target} PRIVATE -Wl,-Bsymbolic -Wl,--version-script=${exports}
                      -Wl,-soname,libcuda.so.1 -Wl,--no-undefined)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1 PREFIX lib NO_SONAME ON
                        LINK_DEPENDS ${exports})
endfunction()
