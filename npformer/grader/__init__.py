"""Grades a class: a folder of submissions becomes a table, points and a page.

A submission passes the modules in this order. `hand_ins` finds the files and `register` their owners. The
package `worker` runs the files, in separate processes and a sandbox; `judge` asks these processes for numbers
and checks them; `run` does so for a class. `marks`, `page` and `alike` write down the results.
"""

CONVENTION = (
    "The exercise pe.table is answered by the top-level name pe_table, a function or a value, or by an entry "
    'answers["pe.table"] of a dict. A line student = "Ada" chooses the numbers that belong to Ada.'
)
