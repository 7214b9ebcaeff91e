"""Material for a class: slides, worksheets, exams, assignments, the model on one page, copies of the lessons."""
