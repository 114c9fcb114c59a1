# SPDX-License-Identifier: Apache-2.0
# Placeholder until the generator lands: the ABI header alone.
add_library(openmps_api_headers INTERFACE)
target_link_libraries(openmps_api_headers INTERFACE openmps_options)
