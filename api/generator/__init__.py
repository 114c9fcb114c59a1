# SPDX-License-Identifier: Apache-2.0
"""Generator of OpenMPS' driver API layer; api/generate.py is the program."""
