"""Grade a class: read a folder of submissions, write tables, points, feedback and a report page.

The commands `npformer check` and `npformer grade` start in `grade_commands`. These are the modules in
the order in which they handle a submission:

1. `submissions` finds the files of the class: in folders, in zip files, or a single file.
2. `companions` gives each submission the other files of the same student.
3. `supervisor` distributes the files over several grading processes and keeps a journal of finished files.
4. `grading_process` grades one file. This process knows the answers and never runs a student's code.
5. `worker_process` starts and ends a process for each submission, in a sandbox that `bubblewrap` makes.
   There, the package `worker` runs the code of the submission. The grading process sends arguments to the
   worker, and the worker sends back the results of the student's functions.
6. `class_list` reads the class list and finds the student who owns each file.
7. `points` computes the points of each student and formats the tables.
8. `similarity` finds pairs of submissions with much code in common.
9. `report_page` writes the summary, the page for the teacher and the feedback for the students.
"""

CONVENTION = (
    "The answer to the exercise pe.table is a function or value with the name pe_table at the top level of "
    'the file, or the entry answers["pe.table"] of a dict. The line student = "Ada" chooses Ada\'s numbers.'
)
