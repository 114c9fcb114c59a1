# SPDX-License-Identifier: Apache-2.0
# The Python that the build and the tests run: `openmps_python`, a command to put in front of a script.
# Scripts use the standard library only.
find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)

# What is found in PATH may be a version manager's script, which looks for the interpreter anew at each
# start: some 0.7 s each on a loaded machine, for every test.
execute_process(COMMAND ${Python3_EXECUTABLE} -c "import sys; print(sys.executable)"
                OUTPUT_VARIABLE openmps_python_interpreter OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)

# Bytecode stays out of the source tree, but is kept.
set(openmps_python ${openmps_python_interpreter} -X pycache_prefix=${CMAKE_BINARY_DIR}/pycache)
